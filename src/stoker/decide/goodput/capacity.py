"""How many requests may be in flight, or come each second, before the bar is missed?

Doubling finds a load that misses, halving the largest that meets. Each replication has its own seed and its own answer;
the mean of all is the capacity, with the interval that their spread allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.decide.goodput import fleet as fleets
from stoker.decide.goodput.fleet import Fleet
from stoker.predict.batching.score import Interval, Score, Slo, interval
from stoker.predict.traffic.profile import Profile

SEEDS: Final = 3
MOST: Final = 4096
_FINE: Final = 0.08  # relative: finer than what the times are known to


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The largest load within the bar. ``at`` is the run there, ``beyond`` the first that was too much."""

    load: Interval
    requests_per_second: Interval
    at: Score | None  # None: not even the smallest load meets the bar
    beyond: Score | None
    why: str


def in_flight(
    fleet: Fleet, profile: Profile, slo: Slo, *, seeds: int = SEEDS, first: int = 8, most: float = MOST
) -> Capacity:
    """In requests under way at once, over all engines; nobody looks beyond ``most``."""

    def judge(load: float, seed: int) -> Score:
        return fleets.closed(fleet, profile, slo, clients=max(1, round(load)), seed=seed)

    return _capacity(judge, slo, seeds=seeds, first=min(float(first), most), least=1.0, most=most)


def users(fleet: Fleet, profile: Profile, slo: Slo, *, seeds: int = SEEDS, first: int = 16) -> Capacity:
    """In sessions that are at work, pauses included."""

    def judge(load: float, seed: int) -> Score:
        return fleets.closed(fleet, profile, slo, clients=max(1, round(load)), seed=seed, pauses=True)

    return _capacity(judge, slo, seeds=seeds, first=float(first), least=1.0)


def per_second(fleet: Fleet, profile: Profile, slo: Slo, *, seeds: int = SEEDS, first: float = 1.0) -> Capacity:
    """In requests that come each second."""

    def judge(load: float, seed: int) -> Score:
        return fleets.opened(fleet, profile, slo, per_second=load, seed=seed)

    return _capacity(judge, slo, seeds=seeds, first=first, least=first / 1024)


@dataclass(frozen=True, slots=True)
class _Found:
    load: float
    at: Score | None
    beyond: Score | None


def _capacity(
    judge: Callable[[float, int], Score], slo: Slo, *, seeds: int, first: float, least: float, most: float = MOST
) -> Capacity:
    found = [_search(judge, seed, first=first, least=least, most=most) for seed in range(seeds)]
    middle = sorted(found, key=lambda each: each.load)[len(found) // 2]
    return Capacity(
        load=interval([each.load for each in found]),
        requests_per_second=interval([each.at.requests_per_second if each.at else 0.0 for each in found]),
        at=middle.at,
        beyond=middle.beyond,
        why=_why(middle, slo),
    )


def _search(judge: Callable[[float, int], Score], seed: int, *, first: float, least: float, most: float) -> _Found:
    """The largest load that meets the bar, within a few percent."""
    low, high = 0.0, 0.0
    at: Score | None = None
    beyond: Score | None = None
    load = first
    while True:
        seen = judge(load, seed)
        if seen.meets:
            low, at = load, seen
        else:
            high, beyond = load, seen
        if (high and high - low <= max(least, _FINE * high)) or low >= most:
            return _Found(low, at, beyond)
        load = (low + high) / 2 if high else min(most, load * 2)


def _why(found: _Found, slo: Slo) -> str:
    """What ends it, in words: the bar that is missed first, and what is full then."""
    beyond = found.beyond
    if beyond is None:
        return "nothing as far as it was looked at"
    bars = [words.split(" ", 1)[0] for words in misses(beyond, slo)]
    return f"{' and '.join(bars)}: {beyond.saturates}"


def misses(score: Score, slo: Slo) -> Sequence[str]:
    """Which bars a run misses, in words."""
    bars = (
        ("TTFT p90 (visible)", score.visible_ttft.p90, slo.visible_ttft_p90_seconds, " s"),
        ("TPOT p90", score.tpot.p90, slo.tpot_p90_seconds, " s"),
        ("errors", score.error_share, slo.error_rate, ""),
    )
    return [f"{name} {value:.3g}{unit}, the bar is {bar:.3g}{unit}" for name, value, bar, unit in bars if value > bar]


def curve(fleet: Fleet, profile: Profile, slo: Slo, *, upto: float, points: int = 8, seed: int = 0) -> list[Score]:
    """Runs of one engine at loads from one request on, evenly spread up to half as much again as it takes."""
    loads = sorted({max(1, round(upto * 1.5 * (i + 1) / points)) for i in range(points)} | {1})
    return [fleets.closed(fleet, profile, slo, clients=load, seed=seed) for load in loads]
