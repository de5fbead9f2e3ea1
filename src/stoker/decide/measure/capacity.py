"""At which load is the bar just met, and between which bounds does that lie?

1. Runs at several levels of load, each level with the same seeds, so that levels differ by their load alone.
2. One curve through all of them: the logit of the share that met the bar is linear in the logarithm of the load. A weak
   prior keeps the slope downward where few levels say little. Fitted by iterated weighted least squares.
3. The capacity is the load at which the curve crosses the bar's level. Its interval is a jackknife over the seeds on
   the logarithm, with Student's t: runs are independent of each other, requests inside a run are not, and an interval
   over requests covers the truth in a third of the cases where it says 95 %.
4. Nothing is extrapolated: unless the highest level fails and the lowest passes, only a bound is given.

Coverage by simulation: `tests/decide/measure/test_capacity.py`.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import exp, log, log1p
from typing import Final

import msgspec

from stoker.decide.measure.student import interval

_PRIOR_SLOPE: Final = -4.0
_PRIOR_SPREAD: Final = 2.0
_ROUNDS: Final = 50
_CLOSE: Final = 1e-9
_LEAST_SEEDS: Final = 3


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


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. ``low`` is what to plan with. Loads are in the unit of the levels."""

    verdict: Verdict
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    slope: float = 0.0
    seeds: int = 0
    levels: int = 0


def capacity(runs: Sequence[Run], *, quantile: float, confidence: float = 0.95) -> Capacity:
    """Find the load at which a share ``quantile`` of the requests meets the bar."""
    runs = [run for run in runs if run.total > 0]
    seeds = sorted({run.seed for run in runs})
    levels = sorted({run.level for run in runs})
    if len(seeds) < _LEAST_SEEDS or len(levels) < 2:
        return Capacity(verdict=Verdict.TOO_FEW, seeds=len(seeds), levels=len(levels))
    if _share(runs, levels[-1]) >= quantile:
        return _bound(Verdict.AT_LEAST, levels[-1], seeds, levels)
    if _share(runs, levels[0]) < quantile:
        return _bound(Verdict.BELOW, levels[0], seeds, levels)
    whole, slope = _crossing(runs, quantile)
    count = len(seeds)
    parts = [_crossing([run for run in runs if run.seed != seed], quantile)[0] for seed in seeds]
    found = interval([count * whole - (count - 1) * part for part in parts], confidence=confidence)
    return Capacity(
        verdict=Verdict.CAPACITY,
        value=exp(whole),
        low=exp(found.low),
        high=exp(found.high),
        slope=slope,
        seeds=count,
        levels=len(levels),
    )


def _share(runs: Sequence[Run], level: float) -> float:
    there = [run for run in runs if run.level == level]
    return sum(run.met for run in there) / sum(run.total for run in there)


def _bound(verdict: Verdict, level: float, seeds: list[int], levels: list[float]) -> Capacity:
    return Capacity(verdict=verdict, value=level, seeds=len(seeds), levels=len(levels))


def _crossing(runs: Sequence[Run], quantile: float) -> tuple[float, float]:
    """Give the logarithm of the load at which the curve crosses, and the slope."""
    points = [(log(run.level), run.met, run.total) for run in runs]
    centre = sum(x for x, _, _ in points) / len(points)
    height, slope = _fit([(x - centre, met, total) for x, met, total in points])
    # Where the prior alone holds the slope it may come out flat or rising; then nothing crosses anywhere sensible.
    slope = min(slope, -0.1)
    return centre + (log(quantile) - log1p(-quantile) - height) / slope, slope


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
