"""Which level of load comes next, and which levels tell where the bar is just met?

1. Coarse first: half as much again until a level fails, and a quarter more once more; one failure may be chance. A ramp
   that begins too high goes down by halves until it meets the bar.
2. A level that was not measured is tried once more; if it cannot be measured then, the generator is at its own end.
3. Then five levels around the one that failed, several runs each on the same seeds, in an order that is drawn for each
   seed: a drift of the machine falls on all levels alike.
4. Nothing is extrapolated: while the highest level still passes one more is put on top, and below likewise.
"""

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

_UP: Final = 1.5
_AGAIN: Final = 1.25
_DOWN: Final = 0.5
_MOST_STEPS: Final = 24
_AROUND: Final = (0.6, 0.725, 0.85, 0.975, 1.1)
_HIGHER: Final = 1.2
_LOWER: Final = 0.7


class Seen(NamedTuple):
    """A step of the ramp; None: it was not measured."""

    level: float
    passed: bool | None


class Around(NamedTuple):
    """What the ramp found; 0: no such level."""

    passed: float
    failed: float


def following(seen: Sequence[Seen], *, start: float, whole: bool) -> float | None:
    """Give the next level of the ramp, or None where it ends. ``whole``: levels are whole numbers."""
    if not seen:
        return start
    if len(seen) >= _MOST_STEPS:
        return None
    last = seen[-1]
    if last.passed is None:
        return last.level if len(seen) < 2 or seen[-2].passed is not None else None
    found = around(seen)
    if not found.passed:
        lower = _rounded(last.level * _DOWN, whole=whole)
        return lower if lower < last.level else None
    if not found.failed:
        return _above(found.passed, _UP, whole=whole)
    failures = sum(step.passed is False and step.level > found.passed for step in seen)
    return _above(found.failed, _AGAIN, whole=whole) if failures < 2 else None


def around(seen: Sequence[Seen]) -> Around:
    """Say between which levels the bar lies: the highest that passed, and the lowest above it that failed."""
    passed = max((step.level for step in seen if step.passed), default=0.0)
    failed = min((step.level for step in seen if step.passed is False and step.level > passed), default=0.0)
    return Around(passed, failed)


def levels(failed: float, *, whole: bool) -> list[float]:
    """Give the levels of the confirmation."""
    return sorted({_rounded(failed * part, whole=whole) for part in _AROUND})


def order(at: Sequence[float], seeds: Sequence[int], *, rng: Random) -> list[tuple[float, int]]:
    """Say in which order to run: all levels of a seed before the next seed, each time drawn anew."""
    runs = []
    for seed in seeds:
        block = list(at)
        rng.shuffle(block)
        runs += [(level, seed) for level in block]
    return runs


def higher(level: float, *, whole: bool) -> float:
    """Give one more level on top."""
    return _above(level, _HIGHER, whole=whole)


def lower(level: float, *, whole: bool) -> float | None:
    """Give one more level at the bottom, or None where there is none."""
    found = _rounded(level * _LOWER, whole=whole)
    return found if found < level else None


def _above(level: float, factor: float, *, whole: bool) -> float:
    found = _rounded(level * factor, whole=whole)
    return max(found, level + 1) if whole else found


def _rounded(level: float, *, whole: bool) -> float:
    return float(max(1, round(level))) if whole else float(f"{level:.3g}")
