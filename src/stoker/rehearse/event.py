"""What an engine does while it answers, one after the other; the server only carries it out."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Wait:
    """Let this many seconds pass; None: for ever."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Head:
    """Begin the answer. ``length``: of the body, or None for a stream."""

    status: int
    length: int | None = None
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes of the body. ``tokens``: how many of the answer's are in it."""

    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """End the answer as it should be, with the reason that the metrics count."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection in the middle; ``reset``: so that the peer's kernel reports an error."""

    reset: bool


@dataclass(frozen=True, slots=True)
class Crash:
    """End the process."""


Event: TypeAlias = Wait | Head | Send | End | Cut | Crash
