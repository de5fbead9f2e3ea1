"""In which order runs are made, what is tried again, and what may be said in the end."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from tests.bench.made import BAR, sample, step, taken

from stoker.base.errors import Invalid
from stoker.bench import search
from stoker.bench.plan import Unit
from stoker.bench.search import Taking
from stoker.decide.measure.capacity import Capacity, Verdict
from stoker.decide.measure.classes import Class
from stoker.decide.measure.ramp import Seen
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Taken

PASSED = Seen(4, passed=True)
Server = Callable[[float, int], list[Sample]]


class Bench:
    """Runs that come of a server whose truth is known, not of a network."""

    def __init__(self, server: Server, unit: Unit = Unit.RATE) -> None:
        self.plan = SimpleNamespace(unit=unit)
        self.bar = BAR
        self.server = server
        self.ran: list[tuple[float, int]] = []
        self.late: set[int] = set()  # the runs, by number, in which the generator was late
        self.interrupted = 0  # the run in which somebody pressed Ctrl-C

    def run(self, level: float, seed: int) -> Taken:
        self.ran.append((level, seed))
        number = len(self.ran)
        trouble = "the generator was late" if number in self.late else ""
        cut = number == self.interrupted
        return taken(self.server(level, seed), load=level, seed=seed, trouble=trouble, interrupted=cut)


def slow_above(capacity: float) -> Server:
    """Serve a tenth too late exactly at the capacity, all in time at half of it."""

    def serve(level: float, seed: int) -> list[Sample]:
        late = round(min(1.0, 0.1 * (level / capacity) ** 4) * 100) + seed % 2
        return [sample(i, ttft=2.0 if i * 37 % 100 < late else 0.2) for i in range(100)]  # no warm-up: all over it

    return serve


def refuse_above(most: float) -> Server:
    """Serve so many a second and refuse the rest at once, as fast as can be."""

    def serve(level: float, seed: int) -> list[Sample]:
        refused = round(max(0.0, 1 - most / level) * 200)
        return [sample(i, kind=Class.REJECTED if i * 37 % 200 < refused else Class.COMPLETE) for i in range(200)]

    return serve


def test_the_ramp_ends_with_the_second_failure_and_is_confirmed_on_the_same_seeds() -> None:
    bench, taking = Bench(slow_above(20.0)), Taking()
    seen = search.climb(bench, taking, start=4.0, seed=7)
    assert [one.passed for one in seen][-3:] == [True, False, False]
    assert {seed for _, seed in bench.ran} == {7}

    before = len(bench.ran)
    found = search.confirm(bench, taking, failed=seen[-2].level, seeds=[1, 2, 3], bar=BAR)
    seeds: dict[float, set[int]] = {}
    for level, seed in bench.ran[before:]:
        seeds.setdefault(level, set()).add(seed)
    assert all(each == {1, 2, 3} for each in seeds.values())
    assert len(seeds) >= 5
    assert found.verdict is Verdict.CAPACITY
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(20.0, rel=0.1)


def test_a_ramp_that_begins_too_high_comes_down() -> None:
    bench, taking = Bench(slow_above(3.0)), Taking()
    seen = search.climb(bench, taking, start=40.0, seed=1)
    assert seen[0].passed is False
    assert any(one.passed for one in seen)


def test_a_server_that_refuses_the_rest_takes_no_more_than_it_serves() -> None:
    bench, taking = Bench(refuse_above(16.0)), Taking()
    seen = search.climb(bench, taking, start=4.0, seed=1)
    failed = next(one.level for one in seen if one.passed is False)
    found = search.confirm(bench, taking, failed=failed, seeds=[1, 2, 3], bar=BAR)
    assert found.verdict is Verdict.CAPACITY
    assert found.value <= 16.0 * 1.02


def test_nothing_is_extrapolated_where_the_highest_level_still_passes() -> None:
    bench, taking = Bench(slow_above(1e9)), Taking()
    found = search.confirm(bench, taking, failed=10.0, seeds=[1, 2, 3], bar=BAR)
    assert found.verdict is Verdict.AT_LEAST
    top = max(level for level, _ in bench.ran)
    assert found.value == top > 11.0  # two levels were put on top before it gave up
    said = search.told(found, BAR, Unit.RATE, window_seconds=60)
    assert said.startswith(f"capacity is at least {top:.3g} requests/s")


def test_even_the_lowest_level_fails() -> None:
    bench, taking = Bench(slow_above(0.1)), Taking()
    found = search.confirm(bench, taking, failed=10.0, seeds=[1, 2, 3], bar=BAR)
    assert found.verdict is Verdict.BELOW
    assert found.value == min(level for level, _ in bench.ran)


def test_what_was_not_measured_is_run_once_more_and_is_left_out_then() -> None:
    bench, taking = Bench(slow_above(20.0)), Taking()
    bench.late = {1, 2, 5}
    search.confirm(bench, taking, failed=20.0, seeds=[1, 2, 3], bar=BAR)
    assert bench.ran[0] == bench.ran[1]  # late twice: no third time
    assert bench.ran[1] != bench.ran[2]
    assert bench.ran[4] == bench.ran[5]
    assert sum(bool(one.late) for one in taking.steps) == 3


def test_ctrl_c_ends_the_confirmation_and_what_was_measured_stays() -> None:
    bench, taking = Bench(slow_above(20.0)), Taking()
    bench.interrupted = 4
    found = search.confirm(bench, taking, failed=20.0, seeds=[1, 2, 3], bar=BAR)
    assert found.verdict is Verdict.TOO_FEW
    assert len(taking.steps) == len(taking.samples) == len(bench.ran) == 4
    assert taking.interrupted


def test_two_sides_take_turns_and_a_late_run_is_forgotten() -> None:
    sides = (Bench(slow_above(20.0)), Bench(slow_above(20.0)))
    order: list[str] = []
    for name, side in zip("AB", sides, strict=True):
        side.server = lambda level, seed, name=name: order.append(name) or slow_above(20.0)(level, seed)  # type: ignore[func-returns-value,misc]
    sides[1].late = {2}
    taking = (Taking(), Taking())
    search.both(sides, taking, level=4.0, seeds=[1, 2, 3])
    assert "".join(order) == "ABBBAAB"  # A B, B (late, again) A, A B
    assert [one.seed for one in taking[1].steps] == [1, 2, 3]
    assert not any(one.late for one in taking[1].steps)


def test_sides_that_fail_differently_are_compared_only_when_that_is_said() -> None:
    a = search.arms([step(4.0, seed=seed) for seed in (1, 2, 3)], "e2e_p50")
    worse = [step(4.0, refuse_above(2.0)(4.0, seed), seed=seed) for seed in (1, 2, 3)]
    b = search.arms(worse, "e2e_p50")
    with pytest.raises(Invalid, match=r"failed requests differ: 0\.0% and 50\.0%"):
        search.difference(a, b, settings=({}, {}), about="url")
    found = search.difference(a, b, settings=({}, {}), about="url", errors_said=True)
    assert "failed: A 0.0%, B 50.0%" in search.verdict(found, "e2e_p50")


def test_what_came_too_late_for_the_bar_is_slow_and_no_error() -> None:
    given_up = [sample(i, kind=Class.TIMEOUT if i < 5 else Class.COMPLETE) for i in range(100)]
    one = step(4.0, given_up)
    assert (one.given_up, one.failed_share, one.attainment) == (5, 0.05, 0.95)
    assert one.passed  # nine of ten met it, and no request failed
    assert search.arms([one], "goodput")[0].failed == 0
    assert search.arms([one], "e2e_p50")[0].failed == 0.05


def test_what_has_no_value_is_not_compared() -> None:
    refused = step(4.0, [sample(i, kind=Class.REJECTED) for i in range(10)])
    with pytest.raises(Invalid, match="the run with seed 1 has no visible_ttft_p90 to compare"):
        search.arms([refused], "visible_ttft_p90")
    with pytest.raises(Invalid, match="there is no metric 'tpot_p5'"):
        search.metric("tpot_p5")


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([PASSED, Seen(6, passed=False)], "4 requests/s met the bar once, 6 did not"),
        ([PASSED, Seen(6, passed=None)], "4 requests/s met the bar, and no level above it was measured"),
        ([Seen(4, passed=False), Seen(2, passed=False)], "no level met the bar, the lowest was 2 requests/s"),
    ],
)
def test_a_quick_ramp_says_no_more_than_it_saw(seen: list[Seen], says: str) -> None:
    assert search.quickly(seen, BAR, Unit.RATE).startswith(says)


def test_the_answer_in_a_sentence() -> None:
    found = Capacity(verdict=Verdict.CAPACITY, value=41.2, low=37.0, high=45.9, seeds=6, levels=5)
    assert search.told(found, BAR, Unit.RATE, window_seconds=120) == (
        "capacity 41.2 requests/s (95 % CI 37-45.9; 6 runs of 120 s at 5 levels; 90% of requests: visible_ttft ≤ 1 s;"
        " failed ≤ 1.0%); plan with 37"
    )
