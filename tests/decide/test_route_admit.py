"""Where a request goes, and whether it may."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.admit import Verdict, admit, output_cap, retry_after
from stoker.decide.route import Choice, Why, eject, route
from stoker.facts.routes import Target


@dataclass
class Seen:
    running: int = 0
    slots: int = 0
    serving: bool = True
    ejected_until: float = 0.0
    seed: int = 0


def target(*names: str, weight: int = 1, priority: int = 0) -> Target:
    return Target(endpoints=names, weight=weight, priority=priority)


TWO = (target("a", "b"),)


@pytest.mark.parametrize(
    ("targets", "loads", "draw", "want"),
    [
        pytest.param(TWO, {"a": Seen(3), "b": Seen(1)}, 0.0, Choice("b", Why.FREE), id="least load"),
        pytest.param(
            TWO, {"a": Seen(0, serving=False), "b": Seen(9)}, 0.0, Choice("b", Why.FREE), id="only who serves"
        ),
        pytest.param(TWO, {"b": Seen(9)}, 0.0, Choice("b", Why.FREE), id="an unknown one is none"),
        pytest.param(TWO, {}, 0.0, Choice("", Why.NONE), id="nobody"),
        pytest.param(
            TWO, {"a": Seen(0, ejected_until=11), "b": Seen(9)}, 0.0, Choice("b", Why.FREE), id="not an ejected one"
        ),
        pytest.param(
            TWO, {"a": Seen(0, ejected_until=11)}, 0.0, Choice("a", Why.FREE), id="an ejected one before none"
        ),
        pytest.param(TWO, {"a": Seen(2, 2), "b": Seen(3, 4)}, 0.0, Choice("b", Why.FREE), id="a free slot"),
        pytest.param(TWO, {"a": Seen(2, 2), "b": Seen(3, 3)}, 0.0, Choice("a", Why.FULL), id="full"),
        pytest.param((target("a"),), {"a": Seen(2, 2)}, 0.0, Choice("a", Why.FULL), id="one, full"),
        pytest.param((target("a", weight=0),), {"a": Seen()}, 0.0, Choice("", Why.NONE), id="no weight"),
        pytest.param(
            (target("a"), target("b", priority=1)),
            {"a": Seen(99), "b": Seen(0)},
            0.9,
            Choice("a", Why.FREE),
            id="priority",
        ),
        pytest.param(
            (target("a"), target("b", priority=1)), {"b": Seen(0)}, 0.0, Choice("b", Why.FREE), id="the next priority"
        ),
        pytest.param(
            (target("a", weight=9), target("b")),
            {"a": Seen(), "b": Seen()},
            0.89,
            Choice("a", Why.FREE),
            id="weight, low",
        ),
        pytest.param(
            (target("a", weight=9), target("b")),
            {"a": Seen(), "b": Seen()},
            0.91,
            Choice("b", Why.FREE),
            id="weight, high",
        ),
        pytest.param(
            (target("a", weight=9), target("b")),
            {"a": Seen(1, 1), "b": Seen(0, 1)},
            0.1,
            Choice("b", Why.FREE),
            id="free first",
        ),
    ],
)
def test_route(targets: tuple[Target, ...], loads: dict[str, Seen], draw: float, want: Choice) -> None:
    assert route(targets, loads, now=10.0, draw=draw) == want


LOADS = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(Seen, st.integers(0, 5), st.integers(0, 4), st.booleans(), st.sampled_from([0.0, 20.0])),
)


@given(LOADS, st.floats(0, 1, exclude_max=True), st.sets(st.sampled_from("abcd")))
def test_route_never_chooses_who_may_not_serve(loads: dict[str, Seen], draw: float, failed: set[str]) -> None:
    targets = (target("a", "b", weight=3), target("c"), target("d", priority=1))
    choice = route(targets, loads, now=10.0, draw=draw, failed=failed)

    able = {name for name, seen in loads.items() if seen.serving and name not in failed}
    assert (choice.endpoint in able) if able else choice == Choice("", Why.NONE)
    if choice.why is Why.FREE:
        seen = loads[choice.endpoint]
        assert not seen.slots or seen.running < seen.slots
    assert route(targets, loads, now=10.0, draw=draw, failed=failed) == choice


def test_ties_are_spread() -> None:
    loads = {"a": Seen(), "b": Seen()}
    chosen = [route(TWO, loads, now=0.0, draw=n / 100).endpoint for n in range(100)]
    assert 20 < chosen.count("a") < 80


@pytest.mark.parametrize(
    ("free", "waiting", "room", "want"),
    [
        (True, 0, 0, Verdict.RUN),
        (True, 1, 4, Verdict.WAIT),
        (False, 0, 4, Verdict.WAIT),
        (False, 4, 4, Verdict.REFUSE),
        (False, 0, 0, Verdict.REFUSE),
    ],
)
def test_admit(free: bool, waiting: int, room: int, want: Verdict) -> None:  # noqa: FBT001
    assert admit(free=free, waiting=waiting, room=room) is want


@given(st.integers(0, 10**6), st.integers(0, 100), st.floats(0, 10**4))
def test_retry_after_is_bounded(waiting: int, slots: int, mean: float) -> None:
    assert 1 <= retry_after(waiting=waiting, slots=slots, mean=mean) <= 30


def test_order_caps_and_ejection() -> None:
    assert (output_cap(service=100, caller=0), output_cap(service=100, caller=10), output_cap(service=0, caller=0)) == (
        100,
        10,
        0,
    )
    assert [eject(faults, now=100.0) for faults in (0, 2, 3, 4, 99)] == [0.0, 0.0, 102.0, 104.0, 160.0]
