"""When do requests come? Three ways, as the loop of ``stoker.predict.batching`` takes them.

Closed: so many clients, each with one request under way; with pauses they are people, without them a benchmark.
Open: requests come by themselves, Poisson or in bursts, each the next turn of some session.
Trace: requests come as they were recorded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from math import ceil
from random import Random
from typing import Final

from stoker.predict.batching.loop import Arrival
from stoker.predict.batching.request import Request
from stoker.predict.traffic.profile import Profile
from stoker.predict.traffic.sessions import Turn, session

_HEAD: Final = 1  # the key of the head that all sessions of a profile share


class _Player:
    """Plays sessions one after another. It begins inside one, for nobody watches only from the start."""

    __slots__ = ("_key", "_numbers", "_profile", "_rng", "_turns")

    def __init__(self, profile: Profile, rng: Random, numbers: Iterator[int]) -> None:
        self._profile = profile
        self._rng = rng
        self._numbers = numbers
        turns = list(session(profile, rng))
        self._turns = iter(turns[rng.randrange(len(turns)) :])
        self._key = next(numbers)

    def turn(self) -> tuple[Turn, Request]:
        """The next turn; the pause before it is the turn's."""
        found = next(self._turns, None)
        while found is None:
            self._turns = session(self._profile, self._rng)
            self._key = next(self._numbers)
            found = next(self._turns, None)
        head = min(self._profile.head_tokens, found.prompt_tokens)
        request = Request(
            prompt_tokens=found.prompt_tokens,
            output_tokens=found.output_tokens,
            hidden_tokens=found.hidden_tokens,
            session=self._key,
            shared_tokens=found.shared_tokens,
            head=_HEAD if head else 0,
            head_tokens=head,
        )
        return found, request


class Closed:
    """So many clients. ``pauses``: each waits before its next request, as a person or a tool does."""

    def __init__(self, profile: Profile, clients: int, rng: Random, *, pauses: bool = False) -> None:
        numbers = count(1)
        self._players = [_Player(profile, rng, numbers) for _ in range(clients)]
        self._pauses = pauses
        self._rng = rng
        self._gap = profile.gap_seconds

    def begin(self) -> list[Arrival]:
        """The first request of each; people do not all begin at once."""
        latest = self._gap.mean if self._pauses else 0.0
        firsts = (player.turn()[1]._replace(client=i) for i, player in enumerate(self._players))
        return [Arrival(self._rng.uniform(0.0, latest), first) for first in firsts]

    def after(self, request: Request, now: float) -> Arrival:
        """The next of the same client."""
        turn, following = self._players[request.client].turn()
        gap = turn.gap_seconds if self._pauses else 0.0
        return Arrival(now + gap, following._replace(client=request.client))


class Open:
    """So many requests a second, whatever becomes of them."""

    def __init__(self, profile: Profile, per_second: float, rng: Random, *, requests: int) -> None:
        numbers = count(1)
        # As many sessions as the pauses between their turns ask for.
        sessions = max(1, ceil(per_second * profile.gap_seconds.mean)) if profile.turns > 1 else 1
        self._players = [_Player(profile, rng, numbers) for _ in range(min(sessions, requests))]
        self._rng = rng
        self._shape = profile.burst
        self._per_second = per_second
        self._requests = requests

    def begin(self) -> Iterator[Arrival]:
        """All of them; gamma between arrivals, and Poisson where its shape is 1."""
        at = 0.0
        for i in range(self._requests):
            at += self._rng.gammavariate(self._shape, 1 / (self._shape * self._per_second))
            yield Arrival(at, self._players[i % len(self._players)].turn()[1])

    def after(self, request: Request, now: float) -> None:  # noqa: ARG002 -- nobody waits for an answer here
        """Nothing: the next comes anyway."""
        return


class Trace:
    """What was recorded, ``speed`` times as fast."""

    def __init__(self, recorded: Sequence[Arrival], *, speed: float = 1.0) -> None:
        self._recorded = recorded
        self._speed = speed

    def begin(self) -> Iterator[Arrival]:
        """All of it."""
        begun = min((arrival.at for arrival in self._recorded), default=0.0)
        return (Arrival((arrival.at - begun) / self._speed, arrival.request) for arrival in self._recorded)

    def after(self, request: Request, now: float) -> None:  # noqa: ARG002 -- as above
        """Nothing."""
        return


def shorter(profile: Profile, context_tokens: int) -> Profile:
    """The same traffic for a context: what is too long is cut, and a growing session is compacted before it is full."""
    if not context_tokens:
        return profile
    growth, head = profile.growth, min(profile.head_tokens, context_tokens // 4)
    if growth is not None and growth.cap_tokens >= context_tokens:
        cap = int(context_tokens * 0.9)
        growth = replace(growth, cap_tokens=cap, compacted_tokens=min(growth.compacted_tokens, cap // 4))
    return replace(profile, context_tokens=context_tokens, head_tokens=head, growth=growth)
