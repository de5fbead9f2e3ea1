"""Classes, comparisons, warm-up and lateness."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.measure.classes import Class, class_of, denominator, rows
from stoker.decide.measure.student import interval, quantile
from stoker.decide.measure.versus import Arm, compare, order, refusals
from stoker.decide.measure.warm import autocorrelation_time, late, percentile, warmed_up
from stoker.facts.ending import Ending, Flag, Outcome


@pytest.mark.parametrize(
    ("ending", "want"),
    [
        (None, Class.NOT_MEASURED),
        (Ending(outcome=Outcome.CANCELLED), Class.NOT_MEASURED),
        (Ending(outcome=Outcome.COMPLETE), Class.COMPLETE),
        (Ending(outcome=Outcome.TOOL_CALLS), Class.COMPLETE),
        (Ending(outcome=Outcome.REFUSAL), Class.COMPLETE),
        (Ending(outcome=Outcome.LENGTH), Class.LENGTH),
        (Ending(outcome=Outcome.COMPLETE, flags=(Flag.EMPTY,)), Class.EMPTY),
        (Ending(outcome=Outcome.LENGTH, flags=(Flag.EMPTY,)), Class.LENGTH),
        (Ending(outcome=Outcome.TOOL_CALLS, flags=(Flag.TOOL_PARSE_FAILED,)), Class.TOOL_PARSE),
        (Ending(outcome=Outcome.LENGTH, flags=(Flag.TOOL_PARSE_FAILED,)), Class.TOOL_PARSE),
        (Ending(outcome=Outcome.TRUNCATED, detail="clean", flags=(Flag.TOOL_PARSE_FAILED,)), Class.TRUNCATED),
        (Ending(outcome=Outcome.TIMEOUT, detail="idle"), Class.TIMEOUT),
        (Ending(outcome=Outcome.REJECTED, detail="queue"), Class.REJECTED),
        (Ending(outcome=Outcome.ERROR, detail="429"), Class.REJECTED),
        (Ending(outcome=Outcome.ERROR, detail="503"), Class.REJECTED),
        (Ending(outcome=Outcome.ERROR, detail="500"), Class.ERROR),
        (Ending(outcome=Outcome.ERROR, detail="in_band"), Class.ERROR),
        (Ending(outcome=Outcome.LOST), Class.ERROR),
    ],
)
def test_one_class_each(ending: Ending | None, want: Class) -> None:
    assert class_of(ending) is want


@given(st.builds(Ending, outcome=st.sampled_from(Outcome), flags=st.sets(st.sampled_from(Flag)).map(tuple)))
def test_every_ending_has_a_class_that_the_table_names(ending: Ending) -> None:
    assert class_of(ending).value in {name for name, _ in rows()}


def test_what_is_not_measured_is_not_in_the_denominator() -> None:
    assert denominator([Class.COMPLETE, Class.NOT_MEASURED, Class.REJECTED]) == 2
    assert [name for name, _ in rows()][:2] == ["not_measured", "error"]


@pytest.mark.parametrize(
    ("confidence", "freedom", "want"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.30265),
        (0.95, 5, 2.57058),
        (0.95, 7, 2.36462),
        (0.95, 30, 2.04227),
        (0.99, 10, 3.16927),
    ],
)
def test_quantiles_are_those_of_the_tables(confidence: float, freedom: int, want: float) -> None:
    assert quantile(confidence, freedom) == pytest.approx(want, abs=2e-4)


def test_intervals() -> None:
    found = interval([10.0, 12.0, 11.0, 13.0])
    assert found.mean == 11.5
    assert found.high - found.mean == pytest.approx(3.18245 * 1.29099 / 2, abs=1e-3)
    assert interval([1.0]) == (1.0, float("-inf"), float("inf"))


def arms(values: list[float], **fields: object) -> list[Arm]:
    return [Arm(seed=seed, value=value, **fields) for seed, value in enumerate(values)]  # type: ignore[arg-type]


def test_pairs_show_what_means_do_not() -> None:
    base = [10.0, 20.0, 40.0, 80.0, 30.0, 60.0]
    found = compare(arms(base), arms([value * 1.1 for value in base]), rng=Random(1))

    assert (round(found.ratio, 3), found.different, found.pairs) == (1.1, True, 6)
    assert found.p == 2 / 2**6
    assert not compare(arms(base), arms(base), rng=Random(1)).different
    mixed = [value * (1.1 if n % 2 else 1 / 1.1) for n, value in enumerate(base)]
    assert not compare(arms(base), arms(mixed), rng=Random(1)).different
    many = [1.0 + n / 100 for n in range(20)]
    assert compare(arms(many), arms([value * 1.05 for value in many]), rng=Random(1)).p < 0.001


@pytest.mark.parametrize(
    ("a", "b", "settings", "says"),
    [
        (arms([1, 2, 3]), arms([1, 2, 3]), ({"model": "a", "engine": "x"}, {"model": "b", "engine": "x"}), None),
        (
            arms([1, 2, 3]),
            arms([1, 2, 3]),
            ({"model": "a", "engine": "x"}, {"model": "b", "engine": "y"}),
            "also in engine",
        ),
        (arms([1, 2, 3]), arms([1, 2]), ({}, {}), "share their seeds"),
        (arms([1, 2]), arms([1, 2]), ({}, {}), "fewer than 3 pairs"),
        (arms([1, 2, 3]), arms([1, 2, 3], late=True), ({}, {}), "late in B"),
        (arms([1, 2, 3]), arms([1, 2, 3], failed=0.5), ({}, {}), "failed requests differ: 0.0% and 50.0%"),
    ],
)
def test_what_must_not_be_compared(
    a: list[Arm], b: list[Arm], settings: tuple[dict[str, str], dict[str, str]], says: str | None
) -> None:
    found = refusals(a, b, settings=settings, about="model")
    assert (found == []) if says is None else any(says in one for one in found)


def test_a_drift_falls_on_both_sides_alike() -> None:
    assert order([7, 8]) == [("A", 7), ("B", 7), ("B", 8), ("A", 8)]


def test_a_warm_up_is_found_and_no_more() -> None:
    rng = Random(5)
    steady = [1.0 + rng.gauss(0, 0.05) for _ in range(200)]
    cold = [5.0 - n / 10 for n in range(40)]
    assert 35 <= warmed_up(cold + steady) <= 60
    assert warmed_up(steady) <= 60
    assert warmed_up([1.0] * 10) == 0


def test_requests_that_hang_together_are_worth_less() -> None:
    rng = Random(5)
    alone = [rng.gauss(0, 1) for _ in range(2000)]
    together = [0.0]
    for value in alone:
        together.append(0.8 * together[-1] + value)
    assert autocorrelation_time(alone) < 1.5
    assert 5 < autocorrelation_time(together) < 14  # (1 + 0.8) / (1 - 0.8) = 9
    assert autocorrelation_time([2.0, 2.0]) == 1.0


@pytest.mark.parametrize(
    ("send", "loop", "says"),
    [
        ([0.001] * 100, [0.001] * 100, ""),
        ([0.001] * 98 + [0.2] * 2, [0.0], "sent late: p99 200.0 ms"),
        ([0.0], [0.2] * 5, "loop was late"),
        ([], [], ""),
    ],
)
def test_lateness_of_our_own(send: list[float], loop: list[float], says: str) -> None:
    assert says in late(send_lags=send, loop_lags=loop, bar_seconds=1.0)
    assert bool(late(send_lags=send, loop_lags=loop, bar_seconds=1.0)) is bool(says)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0.01, 1))
def test_percentiles_are_values_that_were_seen(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
