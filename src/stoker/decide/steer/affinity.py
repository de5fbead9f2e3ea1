"""Which replica holds the beginning of this prompt?

Nothing is remembered: a key (of a session, or of a normalised prompt head) and the incarnations of the replicas give an
order, the same on every gateway that knows the same routes. A replica that was restarted has a new incarnation, hence
a new place in every order: what it had cached is gone, and its affinity with it.

1. Rendezvous: each replica is scored by a mix of the key and its seed, and the best score is the key's home. Adding or
   losing a replica moves only the keys whose home that was.
2. Of many replicas only eight are scored: those that follow the key on a ring. Thousands cost as much as eight.
3. Bounded load: a replica that runs more than ``SPREAD`` times the mean gets nobody new, its keys go to the next in
   their order. A hot prefix so spreads over as many replicas as it needs, and always over the same ones. Up to
   ``QUIET`` requests are no load worth leaving a warm cache for.

Rendezvous hashing: Thaler and Ravishankar 1998. Bounded loads: Mirrokni, Thorup and Zadimoghaddam 2016.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from typing import Final

CANDIDATES: Final = 8
SPREAD: Final = 1.25
QUIET: Final = 4
_POINTS: Final = 32  # of each replica on the ring, so that its share of the keys is even
_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15  # the golden ratio in 64 bits: Knuth's multiplicative hashing


def seed(text: str | bytes) -> int:
    """Turn an incarnation or a key into 64 bits that every gateway computes alike; never 0, which means no key."""
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") | 1


def score(key: int, replica: int) -> int:
    """Say how much a key prefers a replica, by its seed."""
    mixed = ((key ^ replica) * _ODD) & _MASK
    mixed = ((mixed ^ (mixed >> 32)) * _ODD) & _MASK
    return mixed ^ (mixed >> 29)


def fraction(key: int) -> float:
    """Give a number from 0 to 1 (exclusive) that belongs to a key: a session stays on its side of a weighted split."""
    return (score(key, _ODD) >> 11) / (1 << 53)


def order(key: int, seeds: Sequence[int]) -> list[int]:
    """Give the positions of the replicas that a key prefers, the best first; at most eight of them."""
    places = range(len(seeds)) if len(seeds) <= CANDIDATES else _following(key, tuple(seeds))
    return sorted(places, key=lambda place: (score(key, seeds[place]), seeds[place]), reverse=True)


def bound(total: int, count: int) -> int:
    """Say from how many running requests on one of ``count`` replicas is too loaded, where ``total`` run in all."""
    return max(QUIET, ceil(SPREAD * (total + 1) / count))


@lru_cache(maxsize=256)
def _ring(seeds: tuple[int, ...]) -> tuple[list[int], list[int]]:
    points = sorted((score(one, point * 2 + 1), place) for place, one in enumerate(seeds) for point in range(_POINTS))
    return [at for at, _ in points], [place for _, place in points]


def _following(key: int, seeds: tuple[int, ...]) -> list[int]:
    positions, owners = _ring(seeds)
    start = bisect_left(positions, score(key, 1))
    found: dict[int, None] = {}
    for step in range(len(owners)):
        found[owners[(start + step) % len(owners)]] = None
        if len(found) == CANDIDATES:
            break
    return list(found)
