"""How is a client told what it may still ask, and that it may not now?

OpenAI's clients look for spans of time ("6m0s"), Anthropic's for points in time. A wait that no client would sit out is
not offered to them as one: they are told not to repeat, and when the limit will be there again.
"""

from math import ceil
from typing import Final

from stoker.base.clock import rfc3339
from stoker.decide.quota.level import Left, Refusal
from stoker.gateway.troubles import Trouble

_MOST_SECONDS: Final = 120  # the longest wait that the known clients keep to; beyond it they fall back to seconds
STOP: Final = b"x-should-retry: false\r\n"
_NAMES: Final = {
    "requests_per_minute": "requestsPerMinute",
    "tokens_per_minute": "tokensPerMinute",
    "tokens_per_day": "tokensPerDay",
    "concurrent": "concurrent",
    "shared": "shared",
}


_LINES: Final = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n"
_BOTH: Final = (  # in one: most requests that have limits have both
    b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\nx-ratelimit-reset-requests: %b\r\n"
    b"x-ratelimit-limit-tokens: %d\r\nx-ratelimit-remaining-tokens: %d\r\nx-ratelimit-reset-tokens: %b\r\n"
)


def refused(refusal: Refusal) -> Trouble:
    """Name the limit, its value, and what to do."""
    name = _NAMES[refusal.limit]
    wait = ceil(refusal.retry_after)
    if name == "concurrent":
        what = "as many requests are under way; try again when one of them has ended"
    elif wait > _MOST_SECONDS:
        what = f"it is there again in {_span(wait)}; until then only whoever runs this gateway can raise it"
    else:
        what = f"try again in {_span(max(1, wait))}, or have whoever runs this gateway raise it"
    message = f"The limit {name} of {refusal.allowed} for {refusal.whose} is reached: {what}."
    return Trouble(
        status=429, code="rate_limit_exceeded", message=message, retry_after=max(1, min(_MOST_SECONDS, wait))
    )


def heals_soon(refusal: Refusal) -> bool:
    """Whether it is of use to ask again."""
    return refusal.retry_after <= _MOST_SECONDS


def fields(left: Left, *, anthropic: bool, now: float) -> bytes:
    """Write the header lines about what is left; nothing about what has no limit."""
    if not anthropic and left.requests_limit and left.tokens_limit:
        return _BOTH % (
            left.requests_limit,
            left.requests,
            _until(left.requests_reset),
            left.tokens_limit,
            left.tokens,
            _until(left.tokens_reset),
        )
    write = _anthropic if anthropic else _openai
    lines = b""
    if left.requests_limit:
        lines = write(b"requests", left.requests_limit, left.requests, left.requests_reset, now)
    if left.tokens_limit:
        lines += write(b"tokens", left.tokens_limit, left.tokens, left.tokens_reset, now)
    return lines


def _openai(what: bytes, limit: int, rest: int, reset: float, now: float) -> bytes:
    del now
    return _LINES % (what, limit, what, rest, what, _until(reset))


def _until(seconds: float) -> bytes:
    return _span(ceil(seconds)).encode() if seconds >= 1 else b"%dms" % ceil(seconds * 1000)


def _anthropic(what: bytes, limit: int, rest: int, reset: float, now: float) -> bytes:
    lines = (
        b"anthropic-ratelimit-%b-limit: %d\r\n"
        b"anthropic-ratelimit-%b-remaining: %d\r\n"
        b"anthropic-ratelimit-%b-reset: %b\r\n"
    )
    return lines % (what, limit, what, rest, what, rfc3339(ceil(now + reset)).encode())


def _span(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
