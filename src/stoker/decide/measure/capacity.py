"""At which load is the bar just met, and between which bounds does that lie?

1. Runs at several levels of load, each level with the same seeds, so that levels differ by their load alone.
2. One curve through all of them: the logit of the share that met the bar is linear in the logarithm of the load. A weak
   prior keeps the slope downward where few levels say little. Fitted by iterated weighted least squares.
3. The capacity is the load at which the curve crosses the bar's level. Its interval is a jackknife over the seeds on
   the logarithm, with Student's t: runs are independent of each other, requests inside a run are not, and an interval
   over requests covers the truth in a third of the cases where it says 95 %.
4. The ceiling on failed requests has a curve of its own, where any failed, and the lower crossing counts: a server that
   refuses one in twelve still serves nine of ten in time, and no bar with a ceiling of 1 % is met by it.
5. Nothing is extrapolated: unless the highest level fails and the lowest passes, only a bound is given, and the answer
   itself never lies outside the levels that were measured.

Coverage by simulation: `tests/decide/measure/test_capacity.py`.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import exp, log, log1p
from typing import Final, NamedTuple

import msgspec

from stoker.decide.measure.student import interval

_PRIOR_SLOPE: Final = -4.0
_PRIOR_SPREAD: Final = 2.0
_ROUNDS: Final = 50
_CLOSE: Final = 1e-9
_LEAST_SEEDS: Final = 3
_LEAST_CEILING: Final = 1e-4  # of failed requests: no curve ever reaches none at all


class Verdict(StrEnum):
    """What can be said."""

    CAPACITY = "capacity"
    AT_LEAST = "at_least"  # the highest level still passed
    BELOW = "below"  # even the lowest level failed
    TOO_FEW = "too_few_runs"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run: of ``total`` scheduled requests ``met`` met the bar. ``seed`` names its trace; levels share seeds."""

    level: float
    seed: int
    met: int
    total: int
    failed: int = 0  # no good answer at all, however slow


class Needed(NamedTuple):
    """What a level must reach: so many that meet the bar, so few that fail."""

    met_share: float
    failed_share: float


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. ``low`` is what to plan with. Loads are in the unit of the levels."""

    verdict: Verdict
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    slope: float = 0.0
    seeds: int = 0
    levels: int = 0


class Crossing(NamedTuple):
    """The logarithm of the load at which a curve crosses its share, and its slope."""

    at: float
    slope: float


def capacity(runs: Sequence[Run], *, quantile: float, failed_share: float = 1.0, confidence: float = 0.95) -> Capacity:
    """Find the load at which a share ``quantile`` meets the bar, and no more than ``failed_share`` fail."""
    runs = [run for run in runs if run.total > 0]
    seeds = sorted({run.seed for run in runs})
    levels = sorted({run.level for run in runs})
    needed = Needed(quantile, failed_share)
    if len(seeds) < _LEAST_SEEDS or len(levels) < 2:
        return Capacity(verdict=Verdict.TOO_FEW, seeds=len(seeds), levels=len(levels))
    if _passes(runs, levels[-1], needed):
        return _bound(Verdict.AT_LEAST, levels[-1], seeds, levels)
    if not _passes(runs, levels[0], needed):
        return _bound(Verdict.BELOW, levels[0], seeds, levels)
    whole = _crossing(runs, needed)
    count = len(seeds)
    parts = [_crossing([run for run in runs if run.seed != seed], needed).at for seed in seeds]
    found = interval([count * whole.at - (count - 1) * part for part in parts], confidence=confidence)
    value = min(max(exp(whole.at), levels[0]), levels[-1])
    return Capacity(
        verdict=Verdict.CAPACITY,
        value=value,
        low=min(exp(found.low), value),
        high=max(exp(found.high), value),
        slope=whole.slope,
        seeds=count,
        levels=len(levels),
    )


def _passes(runs: Sequence[Run], level: float, needed: Needed) -> bool:
    there = [run for run in runs if run.level == level]
    total = sum(run.total for run in there)
    failed = sum(run.failed for run in there)
    return sum(run.met for run in there) >= needed.met_share * total and failed <= needed.failed_share * total


def _bound(verdict: Verdict, level: float, seeds: list[int], levels: list[float]) -> Capacity:
    return Capacity(verdict=verdict, value=level, seeds=len(seeds), levels=len(levels))


def _crossing(runs: Sequence[Run], needed: Needed) -> Crossing:
    """Give the lower of the two crossings."""
    met = _curve([(run.level, run.met, run.total) for run in runs], needed.met_share)
    if needed.failed_share >= 1 or not any(run.failed for run in runs):
        return met
    good = [(run.level, run.total - run.failed, run.total) for run in runs]
    return min(met, _curve(good, 1 - max(needed.failed_share, _LEAST_CEILING)))


def _curve(counts: Sequence[tuple[float, int, int]], share: float) -> Crossing:
    """Say where the curve through these counts crosses a share."""
    points = [(log(level), met, total) for level, met, total in counts]
    centre = sum(x for x, _, _ in points) / len(points)
    height, slope = _fit([(x - centre, met, total) for x, met, total in points])
    # Where the prior alone holds the slope it may come out flat or rising; then nothing crosses anywhere sensible.
    slope = min(slope, -0.1)
    return Crossing(centre + (log(share) - log1p(-share) - height) / slope, slope)


def _fit(points: Sequence[tuple[float, int, int]]) -> tuple[float, float]:
    """Fit height and slope of the logit by iterated weighted least squares, two unknowns by hand."""
    precision = 1 / _PRIOR_SPREAD**2
    height, slope = 0.0, _PRIOR_SLOPE
    for _ in range(_ROUNDS):
        # The second derivatives and the gradient of the penalised likelihood.
        hh = hs = ss = gh = gs = 0.0
        for x, met, total in points:
            share = 1 / (1 + exp(-min(30.0, max(-30.0, height + slope * x))))
            weight = max(total * share * (1 - share), _CLOSE)
            hh += weight
            hs += weight * x
            ss += weight * x * x
            gh += met - total * share
            gs += (met - total * share) * x
        ss += precision
        gs -= precision * (slope - _PRIOR_SLOPE)
        size = hh * ss - hs * hs
        step_h, step_s = (ss * gh - hs * gs) / size, (hh * gs - hs * gh) / size
        scale = min(1.0, 2.0 / max(abs(step_h), abs(step_s), _CLOSE))  # a first step may overshoot by far
        height, slope = height + scale * step_h, slope + scale * step_s
        if abs(step_h) + abs(step_s) < _CLOSE:
            break
    return height, slope
