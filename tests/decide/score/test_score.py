"""Graders: what must be right is, what must be wrong is, and what did not come is neither."""

import pytest

from stoker.bench.suite.ask import CASES
from stoker.decide.score import controls, tally
from stoker.decide.score.case import Call, Case, Reply
from stoker.decide.score.grade import right

BY_ID = {case.id: case for case in CASES}


def test_the_suite_passes_its_own_controls() -> None:
    assert controls.faults(CASES) == []
    assert all(right(case, controls.oracle(case)) for case in CASES)
    assert not any(right(case, controls.anti_oracle(case)) or right(case, Reply()) for case in CASES)
    assert controls.shuffled(CASES, controls.oracle) <= 0.15


def test_a_broken_suite_is_told() -> None:
    wrong = Case(id="echo-1", kind="echo", prompt="x", max_tokens=1, target="")
    assert controls.faults([wrong]) == ["echo-1: no answer is counted as right"]


@pytest.mark.parametrize(
    ("case", "reply", "want"),
    [
        ("echo-1", Reply(text="amber river 41\n"), True),
        ("echo-1", Reply(text="Amber river 41"), False),
        ("echo-1", Reply(text="Sure: amber river 41"), False),
        ("stop-1", Reply(text="1 2 3 4 5 "), True),
        ("stop-1", Reply(text="1 2 3 4 5 6"), False),
        ("limit-1", Reply(finish="length", output_tokens=13), True),
        ("limit-1", Reply(finish="stop", output_tokens=12), False),
        ("limit-1", Reply(finish="length", output_tokens=40), False),
        ("json-1", Reply(text='```json\n{"city":"Kiel","age":31,"name":"Ann"}\n```'), True),
        ("json-1", Reply(text='{"city":"Kiel","age":"31","name":"Ann"}'), False),
        ("json-1", Reply(text='{"city":"Kiel","age":31,"name":"Ann"'), False),
        ("needle-1", Reply(text="The number is 4,817."), True),
        ("needle-1", Reply(text="4817 or 9032"), False),
        ("arithmetic-1", Reply(text="17 + 25 = 42"), True),
        ("arithmetic-1", Reply(text="42 is 17 + 25"), False),
        ("tool-none-1", Reply(text="The sea is wide."), True),
        ("instruct-5", Reply(text="Rain falls on old roofs."), True),
    ],
)
def test_answers(case: str, reply: Reply, *, want: bool) -> None:
    assert right(BY_ID[case], reply) is want


def test_parallel_calls_may_come_in_any_order_and_no_more_than_were_asked_for() -> None:
    case = BY_ID["tool-parallel-1"]
    assert right(case, Reply(calls=tuple(reversed(case.target_calls))))
    assert not right(case, Reply(calls=(*case.target_calls, case.target_calls[0])))
    assert not right(case, Reply(calls=(case.target_calls[0], Call(name="get_weather", arguments={"city": "Cairo"}))))


def test_what_changed_under_load_is_named_and_what_did_not_come_counts_nowhere() -> None:
    one, two = BY_ID["echo-1"], BY_ID["json-1"]
    rest = [tally.mark(one, right=True), tally.mark(two, right=True)]
    load = [
        tally.mark(one, right=False),
        tally.mark(one, right=False),
        tally.mark(one, right=True),
        tally.mark(two, right=None, why="it answered 503"),
        tally.mark(two, right=True),
    ]
    assert tally.changed(rest, load) == ["echo-1"]
    echo, found = tally.table(rest, load)
    assert (echo.rest, echo.load) == (1.0, pytest.approx(1 / 3))
    assert (found.load, found.not_measured) == (1.0, 1)
