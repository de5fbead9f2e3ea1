"""Is B different from A? Paired by seed: the same traces for both, so what they share falls out.

The effect is the mean of the logarithms of the ratios, with Student's interval over the pairs; p comes from flipping
the signs of the pairs in all ways, which needs no distribution. Runs are refused where settings differ in more than
what is compared, where either side was late, or where errors differ unsaid: a server that refuses half is fast.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import exp, log
from random import Random
from typing import Final

import msgspec

from stoker.decide.measure.student import interval

_ALL_FLIPS: Final = 14  # pairs: more are drawn at random
_DRAWS: Final = 20_000
_LEAST_PAIRS: Final = 3
_ERRORS_DIFFER: Final = 0.01


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one side. ``value`` is what is compared, above 0; ``failed``: the share that was no good answer."""

    seed: int
    value: float
    failed: float = 0.0
    late: bool = False


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """B over A. ``ratio`` 1.1: B is 10 % more. ``different`` where the interval leaves 1 out and p is below 5 %."""

    ratio: float
    low: float
    high: float
    p: float
    pairs: int
    different: bool
    failed_a: float = 0.0  # the shares that were no good answer
    failed_b: float = 0.0


def refusals(
    a: Sequence[Arm],
    b: Sequence[Arm],
    *,
    settings: tuple[Mapping[str, str], Mapping[str, str]],
    about: str,
    errors_said: bool = False,
) -> list[str]:
    """Say why these runs must not be compared.

    ``about`` names the one setting in which they may differ; ``errors_said``: it was said that their errors differ.
    """
    found = []
    first, second = settings
    differ = sorted(name for name in {*first, *second} if first.get(name) != second.get(name) and name != about)
    if differ:
        found.append(f"the runs differ also in {', '.join(differ)}")
    if {arm.seed for arm in a} != {arm.seed for arm in b}:
        found.append("the runs do not share their seeds")
    elif len({arm.seed for arm in a}) < _LEAST_PAIRS:
        found.append(f"there are fewer than {_LEAST_PAIRS} pairs")
    late = [name for name, side in (("A", a), ("B", b)) if any(arm.late for arm in side)]
    if late:
        found.append(f"the generator was late in {' and '.join(late)}: that is not measured")
    if abs(_failed(a) - _failed(b)) > _ERRORS_DIFFER and not errors_said:
        found.append(f"the shares of failed requests differ: {_failed(a):.1%} and {_failed(b):.1%}")
    return found


def _failed(side: Sequence[Arm]) -> float:
    return sum(arm.failed for arm in side) / len(side) if side else 0.0


def compare(a: Sequence[Arm], b: Sequence[Arm], *, rng: Random, confidence: float = 0.95) -> Difference:
    """Compare two sides that share their seeds."""
    of_a = {arm.seed: arm.value for arm in a}
    logs = [log(arm.value / of_a[arm.seed]) for arm in sorted(b, key=lambda arm: arm.seed)]
    found = interval(logs, confidence=confidence)
    p = _flipped(logs, rng)
    apart = (found.low > 0 or found.high < 0) and p < 1 - confidence
    # With four pairs or fewer no flip reaches 5 %; then the interval alone decides.
    few = 2 / 2 ** len(logs) > 1 - confidence
    return Difference(
        ratio=exp(found.mean),
        low=exp(found.low),
        high=exp(found.high),
        p=p,
        pairs=len(logs),
        different=apart or (few and (found.low > 0 or found.high < 0)),
        failed_a=_failed(a),
        failed_b=_failed(b),
    )


def _flipped(logs: Sequence[float], rng: Random) -> float:
    """Give the share of sign flips whose sum is at least as far from nothing as the one that was seen."""
    seen = abs(sum(logs)) - 1e-12
    if len(logs) <= _ALL_FLIPS:
        sums = [abs(sum(sign * value for sign, value in zip(signs, logs, strict=True))) for signs in _signs(len(logs))]
        return sum(value >= seen for value in sums) / len(sums)
    beyond = sum(abs(sum(value * rng.choice((-1, 1)) for value in logs)) >= seen for _ in range(_DRAWS))
    return (beyond + 1) / (_DRAWS + 1)


def _signs(count: int) -> list[tuple[int, ...]]:
    return list(product((-1, 1), repeat=count))


def order(seeds: Sequence[int]) -> list[tuple[str, int]]:
    """Say in which order to run: A B, B A, A B … so that a drift of the machine falls on both alike."""
    turns: list[tuple[str, int]] = []
    for number, seed in enumerate(seeds):
        sides = ("A", "B") if number % 2 == 0 else ("B", "A")
        turns += [(side, seed) for side in sides]
    return turns
