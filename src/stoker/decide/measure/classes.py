"""Into which class does a scheduled request fall? Exactly one each, and all but *not measured* are in the denominator.

What went wrong with the answer as a whole comes before what was wrong inside it; the first class that fits counts. The
table at the end is what a report prints, so that a reader can check it.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from stoker.facts.ending import Ending, Flag, Outcome


class Class(StrEnum):
    """What became of one scheduled request."""

    NOT_MEASURED = "not_measured"  # our own fault: the generator was late, stopped, or could not connect to send
    ERROR = "error"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    TOOL_PARSE = "tool_parse_failed"
    LENGTH = "length"
    EMPTY = "empty"
    COMPLETE = "complete"


GOOD: Final = (Class.COMPLETE, Class.LENGTH)  # a bar may count length as bad; it is a whole answer all the same
PRECEDENCE: Final = (
    (Class.ERROR, (Outcome.ERROR, Outcome.LOST), ()),
    (Class.TRUNCATED, (Outcome.TRUNCATED,), ()),
    (Class.TIMEOUT, (Outcome.TIMEOUT,), ()),
    (Class.REJECTED, (Outcome.REJECTED,), ()),
    (Class.TOOL_PARSE, (), (Flag.TOOL_PARSE_FAILED,)),
    (Class.LENGTH, (Outcome.LENGTH,), ()),
    (Class.EMPTY, (), (Flag.EMPTY,)),
    (Class.COMPLETE, (Outcome.COMPLETE, Outcome.TOOL_CALLS, Outcome.REFUSAL), ()),
)
_REJECTING: Final = frozenset({"429", "503", "529"})  # as a status: the server said no before it began


def class_of(ending: Ending | None) -> Class:
    """Put one request into its class; None: it was never sent, or we cancelled it ourselves."""
    if ending is None or ending.outcome is Outcome.CANCELLED:
        return Class.NOT_MEASURED
    if ending.outcome is Outcome.ERROR and ending.detail in _REJECTING:
        return Class.REJECTED
    for kind, outcomes, flags in PRECEDENCE:
        if ending.outcome in outcomes or any(flag in ending.flags for flag in flags):
            return kind
    return Class.ERROR


def rows() -> list[tuple[str, str]]:
    """Write the table: each class and what falls into it, in the order of precedence."""
    table = [(Class.NOT_MEASURED.value, "never sent, or ended by the generator itself; not in the denominator")]
    for kind, outcomes, flags in PRECEDENCE:
        what = [outcome.value for outcome in outcomes] + [f"flag {flag.value}" for flag in flags]
        if kind is Class.REJECTED:
            what.append("HTTP " + ", ".join(sorted(_REJECTING)))
        table.append((kind.value, "; ".join(what)))
    return table


def denominator(classes: Collection[Class]) -> int:
    """Count those that were measured."""
    return sum(kind is not Class.NOT_MEASURED for kind in classes)
