"""What does whoever forwards an answer need to know of it? One answer: the engine's bytes in, the client's bytes out.

The same interface whatever the two dialects are: bytes that need no change go on identical, a translation is written
anew, and an aggregated answer is kept until ``body``.
"""

from typing import Protocol

from stoker.facts.ending import Ending
from stoker.facts.record import Gaps, Tokens


class Follower(Protocol):
    """Follows one answer. ``feed`` takes bytes cut anywhere and gives the bytes to forward now."""

    @property
    def chunks(self) -> int:
        """How many events of the engine were progress: comments and pings are not."""

    @property
    def done(self) -> bool:
        """Whether the engine's terminator came."""

    @property
    def broken(self) -> bool:
        """Whether an event could not be read, or had no end."""

    @property
    def error(self) -> bytes | None:
        """The JSON of an error that the engine reported inside its answer."""

    @property
    def finish(self) -> str:
        """The engine's own word for why it stopped."""

    @property
    def repairs(self) -> tuple[str, ...]:
        """What was repaired in the engine's bytes, for the record."""

    @property
    def first_token_at(self) -> float:
        """When the first token came, reasoning too; 0 before."""

    @property
    def first_visible_at(self) -> float:
        """When the first token came that a person sees, or the first of a tool call; 0 before."""

    @property
    def last_token_at(self) -> float:
        """When the last token came; 0 before the first."""

    def feed(self, data: bytes, now: float) -> bytes:
        """Follow bytes of an event stream that came at ``now``."""

    def flush(self, now: float) -> bytes:
        """Take what is left at the clean end of a body."""

    def whole(self, body: bytes, now: float) -> bool:
        """Read an answer that came in one piece; False when it is none."""

    def ending(self, *, cut: str) -> Ending:
        """Say how the answer ended; ``cut``: how the connection ended before its body did, or nothing."""

    def tokens(self) -> Tokens:
        """Count tokens: as reported, or by events where the engine reported nothing."""

    def gaps(self) -> Gaps:
        """Summarise the waits between tokens."""

    def keep_alive(self) -> bytes:
        """Write what shows the client that the answer is still coming."""

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write the error frame that ends the client's stream."""

    def body(self) -> bytes:
        """Write the whole answer, after everything was fed."""
