"""What is sent, and when? Scripts from a profile and a seed, or from a trace: the same seed is the same script.

Levels of load differ by their load alone: arrivals of a seed are drawn once for one request a second and then scaled in
time, and what the n-th request asks for does not depend on how fast they come.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from random import Random
from typing import NamedTuple, Protocol

from stoker.bench.load.talk import Ask
from stoker.predict.batching.loop import Arrival
from stoker.predict.traffic.profile import Profile
from stoker.predict.traffic.sessions import Turn, session

_MOST_PLAYERS = 4096
_TOOL_GAP_SECONDS = 10.0  # a pause as short as this is a tool's; people take longer


class Timed(NamedTuple):
    """A request and when it is due, in seconds since the step began."""

    at: float
    ask: Ask


class Script(Protocol):
    """What the generator plays."""

    def begin(self) -> Iterable[Timed]:
        """Those that come whatever happens, in the order of time, and the first of every client."""

    def after(self, ask: Ask) -> Ask | None:
        """What a client asks next; None where nobody waits for an answer."""


class Player:
    """Plays sessions one after another. It begins inside one, for nobody watches only from the start."""

    __slots__ = ("_client", "_profile", "_rng", "_session", "_turn", "_turns")

    def __init__(self, profile: Profile, *, seed: int, client: int) -> None:
        self._profile = profile
        self._client = client
        self._rng = Random(f"{seed}/{client}")  # noqa: S311 -- a script, no secret
        turns = list(session(profile, self._rng))
        at = self._rng.randrange(len(turns))
        first = turns[at]._replace(shared_tokens=min(profile.head_tokens, turns[at].prompt_tokens), gap_seconds=0.0)
        self._turns: Iterator[Turn] = iter([first, *turns[at + 1 :]])
        self._session = client << 20
        self._turn = 0

    def ask(self) -> Ask:
        """The next request."""
        found = next(self._turns, None)
        while found is None:
            self._turns = session(self._profile, self._rng)
            self._session += 1
            self._turn = 0
            found = next(self._turns, None)
        self._turn += 1
        return Ask(
            session=self._session,
            turn=self._turn,
            prompt_tokens=found.prompt_tokens,
            output_tokens=found.output_tokens,
            shared_tokens=found.shared_tokens,
            head_tokens=min(self._profile.head_tokens, found.prompt_tokens),
            gap_seconds=found.gap_seconds,
            tool=self._profile.growth is not None and 0 < found.gap_seconds <= _TOOL_GAP_SECONDS,
            client=self._client,
        )


class Closed:
    """So many clients, each with one request under way. ``pauses``: they are people, and think in between."""

    def __init__(self, profile: Profile, clients: int, *, seed: int, pauses: bool, spread_seconds: float) -> None:
        self._players = [Player(profile, seed=seed, client=i) for i in range(clients)]
        self._pauses = pauses
        self._rng = Random(f"{seed}/closed")  # noqa: S311 -- a script, no secret
        # They do not all begin at once: a salvo measures a queue that no ordinary day has.
        self._latest = max(spread_seconds, profile.gap_seconds.mean) if pauses else spread_seconds

    def begin(self) -> Iterator[Timed]:
        """The first request of each."""
        times = sorted(self._rng.uniform(0.0, self._latest) for _ in self._players)
        return (Timed(at, player.ask()) for at, player in zip(times, self._players, strict=True))

    def after(self, ask: Ask) -> Ask:
        """The next of the same client."""
        following = self._players[ask.client].ask()
        return following if self._pauses else following._replace(gap_seconds=0.0)


class Open:
    """So many requests a second, whatever becomes of them. ``players_rate``: for which rate the sessions are chosen."""

    def __init__(self, profile: Profile, per_second: float, *, seed: int, players_rate: float = 0.0) -> None:
        want = ceil((players_rate or per_second) * profile.gap_seconds.mean) if profile.turns > 1 else 1
        count = min(max(1, want), _MOST_PLAYERS)
        self._players = [Player(profile, seed=seed, client=i) for i in range(count)]
        self._rng = Random(f"{seed}/open")  # noqa: S311 -- a script, no secret
        self._shape = profile.burst
        self._per_second = per_second

    def begin(self) -> Iterator[Timed]:
        """All of them, without an end: gamma between arrivals, and Poisson where its shape is 1."""
        at, number = 0.0, 0
        while True:
            at += self._rng.gammavariate(self._shape, 1 / self._shape)
            yield Timed(at / self._per_second, self._players[number % len(self._players)].ask())
            number += 1

    def after(self, ask: Ask) -> None:  # noqa: ARG002 -- nobody waits for an answer here
        """Nothing: the next comes anyway."""
        return


class Recorded:
    """What was recorded, ``speed`` times as fast."""

    def __init__(self, arrivals: Sequence[Arrival], *, speed: float = 1.0) -> None:
        self._arrivals = arrivals
        self._speed = speed

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return (self._arrivals[-1].at - self._arrivals[0].at) / self._speed

    def begin(self) -> Iterator[Timed]:
        """All of it."""
        begun = self._arrivals[0].at
        turns: dict[int, int] = {}
        for number, (at, request) in enumerate(self._arrivals):
            key = request.session or -1 - number
            turns[key] = turns.get(key, 0) + 1
            yield Timed(
                (at - begun) / self._speed,
                Ask(
                    session=key,
                    turn=turns[key],
                    prompt_tokens=request.prompt_tokens,
                    output_tokens=request.output_tokens,
                    shared_tokens=max(request.shared_tokens, request.head_tokens),
                    head_tokens=request.head_tokens,
                ),
            )

    def after(self, ask: Ask) -> None:  # noqa: ARG002 -- as above
        """Nothing."""
        return


class Burst:
    """So many requests in turn over so many connections, then no more: for the checks of ourselves."""

    def __init__(self, asks: Sequence[Ask], clients: int, *, apart_seconds: float = 0.0) -> None:
        self._left = iter(asks)
        self._clients = clients
        self._apart = apart_seconds

    def begin(self) -> Iterator[Timed]:
        """The first of each client."""
        for number in range(self._clients):
            found = next(self._left, None)
            if found is not None:
                yield Timed(number * self._apart, found)

    def after(self, ask: Ask) -> Ask | None:  # noqa: ARG002 -- whoever is free takes the next
        """The next, until there are none."""
        return next(self._left, None)
