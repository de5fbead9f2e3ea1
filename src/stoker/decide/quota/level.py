"""May one more request come under these limits, how much is left, and when is there more?

1. Rates are levels that refill steadily, and a full one holds a minute's worth: nobody gains by waiting for a minute to
   turn.
2. Tokens are reserved by an estimate and settled by what was used. A level may fall below nothing; whoever comes next
   waits for it.
3. A request is let in when its estimate is there. One that needs more than a whole level needs a full one: it could
   never come otherwise.
4. Days are those of UTC. A request whose estimate is more than the rest of the day waits for the next one.
5. Every limit of every scope must allow it, and nothing is taken from any when one does not. The limit is named that
   takes longest to heal, so that whoever waits as told gets in.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from stoker.facts.routes import Limits

DAY_SECONDS: Final = 86400
FULL: Final = 1e300  # of a level without a limit: whatever limit comes later finds it full
_SOON_SECONDS: Final = 1.0  # nobody knows when a running request will end


class Demand(msgspec.Struct, frozen=True):
    """One scope under which a request comes: a caller, a model, or a caller at a model."""

    name: str  # unique over all scopes
    limits: Limits
    whose: str  # for people
    model: bool = False  # of a model over all callers


class Level(msgspec.Struct, frozen=True):
    """What one scope has left, and what it used today."""

    requests: float = FULL
    tokens: float = FULL
    at: float = 0.0
    day: int = 0
    spent: int = 0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Which limit said no, what it is, and in how many seconds it will say yes."""

    limit: str
    allowed: int
    whose: str
    retry_after: float
    model: bool = False


class Left(msgspec.Struct, frozen=True):
    """What is left under the tightest limits of each sort; a limit of 0: there is none. Resets: seconds until full."""

    requests_limit: int = 0
    requests: int = 0
    requests_reset: float = 0.0
    tokens_limit: int = 0
    tokens: int = 0
    tokens_reset: float = 0.0


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a request, and what its caller may still do."""

    refusal: Refusal | None
    left: Left


def refilled(level: Level, limits: Limits, now: float) -> Level:
    """Bring a level to the present, and inside its limits."""
    minutes = (now - level.at) / 60
    if minutes < 0:  # the clock was set back
        minutes = 0.0
    today = int(now // DAY_SECONDS)
    requests = tokens = FULL
    by_minute = limits.requests_per_minute  # plain comparisons: this runs twice a request, and `min` costs a call
    if by_minute:
        requests = level.requests + minutes * by_minute
        if requests > by_minute:
            requests = float(by_minute)
    by_minute = limits.tokens_per_minute
    if by_minute:
        tokens = level.tokens + minutes * by_minute
        if tokens > by_minute:
            tokens = float(by_minute)
    return Level(requests, tokens, now, today, level.spent if level.day == today else 0)


def granted(  # noqa: C901, PLR0912 -- written out: see below
    level: Level, limits: Limits, *, tokens: int, running: int, now: float
) -> Level | None:
    """Do what ``refilled``, ``refuse`` and ``taken`` do for the request that is let in; None: ``refuse`` says why not.

    Written out, for every request comes by here: three levels and three calls would cost more than the limits.
    """
    minutes = (now - level.at) / 60
    if minutes < 0:
        minutes = 0.0
    today = int(now // DAY_SECONDS)
    spent = level.spent if level.day == today else 0
    requests = rest = FULL
    if limits.concurrent and running >= limits.concurrent:
        return None
    limit = limits.requests_per_minute
    if limit:
        requests = level.requests + minutes * limit
        if requests > limit:
            requests = float(limit)
        if requests < 1:
            return None
    limit = limits.tokens_per_minute
    if limit:
        rest = level.tokens + minutes * limit
        if rest > limit:
            rest = float(limit)
        if rest < (tokens if 0 < tokens <= limit else _need(tokens, limit)):
            return None
    limit = limits.tokens_per_day
    if limit and spent + (tokens if 0 < tokens <= limit else _need(tokens, limit)) > limit:
        return None
    return Level(requests - 1, rest - tokens, now, today, spent + tokens)


def refuse(demand: Demand, level: Level, *, tokens: int, running: int, now: float) -> Refusal | None:
    """Say which limit of one scope refuses, if one does: the one that takes longest to heal."""
    limits, worst = demand.limits, None
    if limits.concurrent and running >= limits.concurrent:
        worst = _longer(worst, demand, "concurrent", limits.concurrent, wait=_SOON_SECONDS)
    by_minute = limits.requests_per_minute
    if by_minute and level.requests < 1:
        worst = _longer(worst, demand, "requests_per_minute", by_minute, wait=(1 - level.requests) * 60 / by_minute)
    by_minute = limits.tokens_per_minute
    if by_minute and (need := _need(tokens, by_minute)) > level.tokens:
        worst = _longer(worst, demand, "tokens_per_minute", by_minute, wait=(need - level.tokens) * 60 / by_minute)
    by_day = limits.tokens_per_day
    if by_day and level.spent + _need(tokens, by_day) > by_day:
        worst = _longer(worst, demand, "tokens_per_day", by_day, wait=DAY_SECONDS - now % DAY_SECONDS)
    return worst


def _need(tokens: int, limit: int) -> int:
    return 1 if tokens < 1 else min(tokens, limit)


def _longer(worst: Refusal | None, demand: Demand, limit: str, allowed: int, *, wait: float) -> Refusal:
    if worst is not None and wait <= worst.retry_after:
        return worst
    return Refusal(limit=limit, allowed=allowed, whose=demand.whose, retry_after=wait, model=demand.model)


def longest(refusals: Sequence[Refusal]) -> Refusal | None:
    """Choose the refusal that takes longest to heal."""
    return max(refusals, key=lambda r: r.retry_after, default=None)


def taken(level: Level, tokens: int) -> Level:
    """Take one request and its estimate."""
    return Level(level.requests - 1, level.tokens - tokens, level.at, level.day, level.spent + tokens)


def settled(level: Level, reserved: int, used: int, *, request: bool) -> Level:
    """Put what was used in the place of what was reserved; ``request``: whether it counts as one."""
    more = used - reserved
    requests = level.requests if request else level.requests + 1
    return Level(requests, level.tokens - more, level.at, level.day, max(0, level.spent + more))


def ended(level: Level, limits: Limits, *, more: int, request: bool, now: float) -> Level:
    """Do what ``refilled`` and ``settled`` do, in one: ``more`` tokens were used than were reserved."""
    minutes = (now - level.at) / 60
    if minutes < 0:
        minutes = 0.0
    today = int(now // DAY_SECONDS)
    spent = (level.spent if level.day == today else 0) + more
    requests = rest = FULL
    limit = limits.requests_per_minute
    if limit:
        requests = level.requests + minutes * limit
        if requests > limit:
            requests = float(limit)
    if not request:
        requests += 1
    limit = limits.tokens_per_minute
    if limit:
        rest = level.tokens + minutes * limit
        if rest > limit:
            rest = float(limit)
    return Level(requests, rest - more, now, today, max(0, spent))


def share(limits: Limits, part: float) -> Limits:
    """Give the part of each limit that one machine keeps by itself; never nothing, for nothing means no limit."""

    def some(limit: int) -> int:
        return max(1, int(limit * part)) if limit else 0

    return Limits(
        requests_per_minute=some(limits.requests_per_minute),
        tokens_per_minute=some(limits.tokens_per_minute),
        tokens_per_day=some(limits.tokens_per_day),
        concurrent=some(limits.concurrent),
        max_output_tokens=limits.max_output_tokens,
    )


def left_of(limits: Limits, level: Level, now: float) -> Left:
    """Say what is left of one scope; see ``left``."""
    requests_limit, tokens_limit, requests, tokens = limits.requests_per_minute, limits.tokens_per_minute, 0.0, 0.0
    requests_reset = tokens_reset = 0.0
    if requests_limit:
        requests = level.requests
        requests_reset = (requests_limit - requests) * 60 / requests_limit
    if tokens_limit:
        tokens = level.tokens
        tokens_reset = (tokens_limit - tokens) * 60 / tokens_limit
    by_day = limits.tokens_per_day
    if by_day and (not tokens_limit or (by_day - level.spent) * tokens_limit < tokens * by_day):
        tokens_limit, tokens, tokens_reset = by_day, by_day - level.spent, DAY_SECONDS - now % DAY_SECONDS
    return Left(
        requests_limit,
        int(requests) if requests > 0 else 0,
        requests_reset,
        tokens_limit,
        int(tokens) if tokens > 0 else 0,
        tokens_reset,
    )


def left(demands: Sequence[Demand], levels: Sequence[Level], now: float) -> Left:
    """Say what is left under the limits that will bind first."""
    requests_limit = tokens_limit = 0
    requests = tokens = 0.0
    by_day = False
    for demand, level in zip(demands, levels, strict=True):
        limits = demand.limits
        limit = limits.requests_per_minute
        if limit and (not requests_limit or level.requests * requests_limit < requests * limit):
            requests_limit, requests = limit, level.requests
        limit = limits.tokens_per_minute
        if limit and (not tokens_limit or level.tokens * tokens_limit < tokens * limit):
            tokens_limit, tokens, by_day = limit, level.tokens, False
        limit = limits.tokens_per_day
        if limit and (not tokens_limit or (limit - level.spent) * tokens_limit < tokens * limit):
            tokens_limit, tokens, by_day = limit, limit - level.spent, True
    reset = DAY_SECONDS - now % DAY_SECONDS if by_day else _until_full(tokens_limit, tokens)
    return Left(
        requests_limit,
        int(requests) if requests > 0 else 0,
        _until_full(requests_limit, requests),
        tokens_limit,
        int(tokens) if tokens > 0 else 0,
        reset,
    )


def _until_full(limit: int, level: float) -> float:
    return (limit - level) * 60 / limit if limit else 0.0
