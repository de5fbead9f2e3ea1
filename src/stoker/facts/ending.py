"""How did an answer end? One enum for the gateway, the ledger, benchmarks, SLOs and alerts."""

from enum import StrEnum
from typing import Final

import msgspec


class Outcome(StrEnum):
    """How one request ended. The words are stable: scripts and alerts match on them."""

    COMPLETE = "complete"  # the engine said stop, and its terminator arrived
    LENGTH = "length"  # the engine stopped at the token limit and said so
    TOOL_CALLS = "tool_calls"  # the engine asks the client to call tools
    REFUSAL = "refusal"  # a content filter or the model refused
    REJECTED = "rejected"  # we said no before the engine was asked; detail: which limit
    CANCELLED = "cancelled"  # the client left
    TRUNCATED = "truncated"  # the engine's answer broke off; detail: clean | reset
    TIMEOUT = "timeout"  # detail: connect | first_byte | idle | max_generation
    ERROR = "error"  # detail: in_band | an HTTP status
    LOST = "lost"  # our own worker died while the request ran


class Flag(StrEnum):
    """What was wrong with an answer that nevertheless ended."""

    EMPTY = "empty"
    TOOL_PARSE_FAILED = "tool_parse_failed"
    SCHEMA_VIOLATION = "schema_violation"
    REPETITION = "repetition"


ANSWERED: Final = frozenset({Outcome.COMPLETE, Outcome.LENGTH, Outcome.TOOL_CALLS, Outcome.REFUSAL})


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One outcome with its detail and flags."""

    outcome: Outcome
    detail: str = ""
    flags: tuple[Flag, ...] = ()
