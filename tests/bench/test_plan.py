"""What must be the same when an experiment is repeated."""

from random import Random

import pytest

from stoker.base.errors import Invalid
from stoker.bench.load.script import Closed, Open, Recorded
from stoker.bench.load.talk import Ask
from stoker.bench.plan import Plan, Unit, scaled
from stoker.decide.measure.bar import Bar
from stoker.predict.batching.loop import Arrival
from stoker.predict.batching.request import Request
from stoker.predict.traffic.profile import find


def plan(unit: Unit, **more: object) -> Plan:
    return Plan(unit=unit, window_seconds=30.0, profile=find("chat"), salt="s", **more)  # type: ignore[arg-type]


def arrivals() -> list[Arrival]:
    return [Arrival(at, Request(10, 4, session=i)) for i, at in enumerate((0.0, 2.0, 8.0))]


@pytest.mark.parametrize(
    ("unit", "kind"), [(Unit.CONCURRENCY, Closed), (Unit.USERS, Closed), (Unit.RATE, Open), (Unit.SPEED, Recorded)]
)
def test_each_unit_has_its_script(unit: Unit, kind: type) -> None:
    assert isinstance(plan(unit, recorded=arrivals()).script(2.0, 1), kind)
    assert unit.words


def test_a_step_ends_with_its_window_or_with_its_recording() -> None:
    assert plan(Unit.RATE).limits(None, 2.0).window == 30.0
    assert plan(Unit.SPEED, recorded=arrivals()).limits(None, 2.0).window == pytest.approx(8.0 / 2 + 1)
    assert plan(Unit.SPEED, recorded=arrivals()).limits(None, 0.1).window == 30.0


def test_a_request_is_given_up_when_the_bar_is_out_of_reach() -> None:
    bar = Bar(limits=(("visible_ttft", 2.0), ("tpot", 0.1)))
    ask = Ask(1, 1, prompt_tokens=20, output_tokens=30, shared_tokens=0, head_tokens=0)
    deadline = plan(Unit.RATE).limits(bar, 1.0).deadline
    assert deadline is not None
    assert deadline(ask) == pytest.approx(2.0 + 30 * 0.1)
    assert plan(Unit.RATE).limits(None, 1.0).deadline is None


@pytest.mark.parametrize("name", ["chat", "agent"])
def test_scaled_traffic_is_the_same_but_for_its_lengths(name: str) -> None:
    whole, part = find(name), scaled(find(name), 16)
    for draw in ("prompt", "output"):
        long, short = getattr(whole, draw), getattr(part, draw)
        assert short.mean == pytest.approx(long.mean / 16)
        assert [short(Random(i)) for i in range(20)] == pytest.approx([long(Random(i)) / 16 for i in range(20)])
    assert scaled(whole, 1) is whole


def test_nothing_is_divided_by_nothing() -> None:
    with pytest.raises(Invalid, match="--scale"):
        scaled(find("chat"), 0)
