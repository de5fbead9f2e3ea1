"""What is reserved for a request, and what it pays."""

import pytest

from stoker.decide.quota.estimate import FIRST_ANSWER_TOKENS, Answers, completed, prompt, used
from stoker.decide.steer.window import Ratio
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Tokens


def test_expected_answers_follow_what_came_and_never_exceed_the_cap() -> None:
    answers = Answers()
    assert FIRST_ANSWER_TOKENS <= answers.expected(32_000) < 32_000 / 10  # a matter of form is not believed
    assert (answers.expected(16), answers.expected(0)) == (16, 0)
    for _ in range(200):
        answers.learn(1000)
    assert 990 <= answers.expected(32_000) <= 1020
    for _ in range(200):
        answers.learn(10)
    assert 10 <= answers.expected(32_000) <= 40


def test_in_the_long_run_no_less_is_reserved_than_used() -> None:
    answers, reserved, spent = Answers(), 0, 0
    for turn in range(400):
        length = (5, 40, 2000, 300)[turn % 4]
        reserved += answers.expected(4096)
        spent += length
        answers.learn(length)
    assert reserved >= spent


def test_prompts_are_estimated_by_what_the_engine_counted_before() -> None:
    ratio = Ratio()
    assert prompt(4000, ratio) == 1000
    ratio.learn(4000, 2000)
    assert prompt(4000, ratio) == 2000
    assert prompt(8_000_000, ratio, opaque=True) == 4096  # an image


BEGUN = Tokens(output=3, visible=3, estimated=True)
REPORTED = Tokens(prompt=10, output=3)


@pytest.mark.parametrize(
    ("tokens", "outcome", "detail", "dispatched", "want"),
    [
        pytest.param(REPORTED, Outcome.COMPLETE, "", True, (13, False), id="as reported"),
        pytest.param(BEGUN, Outcome.COMPLETE, "", True, (103, True), id="an engine that reports nothing"),
        pytest.param(BEGUN, Outcome.CANCELLED, "", True, (103, True), id="left in the middle"),
        pytest.param(BEGUN, Outcome.TRUNCATED, "reset", True, (103, True), id="cut in the middle"),
        pytest.param(Tokens(), Outcome.CANCELLED, "", True, (100, True), id="left before the first token"),
        pytest.param(Tokens(), Outcome.TIMEOUT, "first_byte", True, (100, True), id="silent for too long"),
        pytest.param(Tokens(), Outcome.TIMEOUT, "connect", True, (0, False), id="never reached"),
        pytest.param(Tokens(), Outcome.TRUNCATED, "clean", True, (0, False), id="cut before it began"),
        pytest.param(Tokens(), Outcome.ERROR, "502", True, (0, False), id="refused by the engine"),
        pytest.param(Tokens(), Outcome.CANCELLED, "", False, (0, False), id="left in the queue"),
        pytest.param(Tokens(), Outcome.REJECTED, "queue", False, (0, False), id="refused by us"),
    ],
)
def test_what_a_request_pays(
    tokens: Tokens,
    outcome: Outcome,
    detail: str,
    dispatched: bool,  # noqa: FBT001
    want: tuple[int, bool],
) -> None:
    ending = Ending(outcome=outcome, detail=detail)
    whole = completed(tokens, ending, dispatched=dispatched, estimate=100)

    assert (used(whole, ending), whole.estimated) == want
