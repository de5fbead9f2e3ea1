"""The five errors that Stoker raises.

Invalid     the input is wrong; says where and what would be right   (CLI exit 2, HTTP 400)
NotFound    the named thing does not exist                           (CLI exit 2, HTTP 404)
Conflict    somebody else changed it first, or it exists already     (CLI exit 1, HTTP 409)
Denied      the caller may not do this                               (CLI exit 1, HTTP 401 or 403)
Driver      the world refused: a process, a disk, a network          (CLI exit 1, HTTP 502)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with an input: where, what, and what would be right."""

    message: str
    file: str = ""
    line: int = 0
    field: str = ""
    hint: str = ""

    def __str__(self) -> str:
        """Render as ``file:line: field: message (hint)``, leaving out what is unknown."""
        place = ":".join(part for part in (self.file, str(self.line) if self.line else "") if part)
        head = ": ".join(part for part in (place, self.field, self.message) if part)
        return f"{head} ({self.hint})" if self.hint else head


class StokerError(Exception):
    """What every error of ours is."""


class Invalid(StokerError):
    """The input is wrong. ``faults`` lists every fault that was found, not only the first."""

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = tuple(Fault(message=fault) if isinstance(fault, str) else fault for fault in faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


class NotFound(StokerError):
    """The named thing does not exist."""


class Conflict(StokerError):
    """It was changed by somebody else in between, or it exists already."""


class Denied(StokerError):
    """The caller may not do this."""


class Driver(StokerError):
    """The world refused: a process did not start, a disk is full, a peer is gone. ``reason``: as a condition has it."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)


def nearest(word: str, known: Sequence[str]) -> str:
    """Say which known word was probably meant: ``did you mean 'x'?``, or the empty string."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else ""
