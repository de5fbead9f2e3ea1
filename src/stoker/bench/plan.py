"""What is one experiment made of? Everything that must be the same when it is repeated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.bench.load.generator import Limits
from stoker.bench.load.render import render
from stoker.bench.load.script import Closed, Open, Recorded, Script
from stoker.bench.load.talk import Style
from stoker.bench.reach import Reached
from stoker.decide.measure.bar import Bar
from stoker.predict.batching.loop import Arrival
from stoker.predict.traffic.draw import Draw
from stoker.predict.traffic.profile import Profile

_SPREAD: Final = 0.1  # of a window: so long until all clients have begun


class Unit(StrEnum):
    """What a level of load is counted in."""

    CONCURRENCY = "concurrency"  # requests in flight, always
    USERS = "users"  # people who think between their requests
    RATE = "rate"  # requests a second, whatever becomes of them
    SPEED = "speed"  # of a recording

    @property
    def words(self) -> str:
        """Say what a number of them counts."""
        return _WORDS[self]


_WORDS: Final = {
    Unit.CONCURRENCY: "requests in flight",
    Unit.USERS: "users",
    Unit.RATE: "requests/s",
    Unit.SPEED: "x the recorded speed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One experiment, but for its levels of load and its seeds."""

    unit: Unit
    window_seconds: float
    profile: Profile
    recorded: Sequence[Arrival] = ()
    salt: str
    model_answers: bool = True
    head_last: bool = False
    exact: bool = False
    extra: bytes = b""
    idle_seconds: float = 120.0
    first_byte_seconds: float = 600.0
    sessions_rate: float = 0.0  # for which rate the number of sessions is chosen: the same at all levels

    @property
    def tools(self) -> bool:
        """Whether requests offer a tool."""
        return self.profile.growth is not None and not self.recorded

    def style(self, reached: Reached, *, number: int) -> Style:
        """How the texts of the n-th run are written: none finds in a cache what another left there."""
        return Style(
            render=render(reached.target, exact=self.exact, extra=self.extra),
            book=reached.book,
            costs=reached.costs,
            salt=f"{self.salt}/{number}",
            tools=self.tools,
            head_last=self.head_last,
        )

    def script(self, level: float, seed: int) -> Script:
        """What is sent at a level. Raises Invalid."""
        if self.unit is Unit.RATE:
            return Open(self.profile, level, seed=seed, players_rate=self.sessions_rate)
        if self.unit is Unit.SPEED:
            return Recorded(self.recorded, speed=level)
        return Closed(
            self.profile,
            round(level),
            seed=seed,
            pauses=self.unit is Unit.USERS,
            spread_seconds=self.window_seconds * _SPREAD,
        )

    def limits(self, bar: Bar | None, level: float) -> Limits:
        """How long a step may take."""
        window = self.window_seconds
        if self.unit is Unit.SPEED and self.recorded:
            length = Recorded(self.recorded, speed=level).seconds + 1.0  # the last one is due at its very end
            window = min(window, length) if window else length
        return Limits(
            window=window,
            idle=self.idle_seconds,
            first_byte=self.first_byte_seconds,
            deadline=(lambda ask: bar.deadline_seconds(ask.output_tokens)) if bar is not None else None,
        )


def scaled(profile: Profile, by: float) -> Profile:
    """The same traffic with every length divided: for a model that is small, or a machine that is slow."""
    if by == 1:
        return profile
    if by <= 0:
        raise Invalid(Fault(message="lengths are divided by a number above 0", field="--scale", hint="such as 64"))
    growth = profile.growth
    if growth is not None:
        growth = replace(
            growth,
            start=_Divided(growth.start, by),
            subagent_start=_Divided(growth.subagent_start, by),
            added=_Divided(growth.added, by),
            cap_tokens=int(growth.cap_tokens / by),
            compacted_tokens=int(growth.compacted_tokens / by),
        )
    return replace(
        profile,
        prompt=_Divided(profile.prompt, by),
        output=_Divided(profile.output, by),
        head_tokens=int(profile.head_tokens / by),
        growth=growth,
    )


def with_head(profile: Profile, tokens: int) -> Profile:
    """The same prompts behind a part of so many tokens that all of them share; each is asked once."""
    longer = _Longer(profile.prompt, tokens)
    return replace(profile, prompt=longer, head_tokens=tokens, turns=1.0, growth=None)


@dataclass(frozen=True, slots=True)
class _Longer:
    """A draw, and so much more."""

    draw: Draw
    more: float

    def __call__(self, rng: Random) -> float:
        """Draw one."""
        return self.draw(rng) + self.more

    @property
    def mean(self) -> float:
        """Of many."""
        return self.draw.mean + self.more


@dataclass(frozen=True, slots=True)
class _Divided:
    """A draw, divided."""

    draw: Draw
    by: float

    def __call__(self, rng: Random) -> float:
        """Draw one."""
        return self.draw(rng) / self.by

    @property
    def mean(self) -> float:
        """Of many."""
        return self.draw.mean / self.by
