"""How does a client speak to us? Each dialect brings its path, its errors, its keep-alive and its terminator."""

from dataclasses import dataclass
from typing import Final, Protocol

from stoker.wire import errors


class Errors(Protocol):
    """How a family of dialects writes errors; a module of ``wire`` has this shape."""

    def body(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
        """Write an error body."""

    def frame(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write an error inside a stream."""

    def frame_of(self, data: bytes) -> bytes:
        """Put an error body into a frame of a stream."""

    def in_shape(self, status: int, data: bytes) -> bytes:
        """Bring an engine's error body into the dialect's shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API surface."""

    name: str
    path: bytes  # as the client asks
    upstream: bytes  # behind the endpoint's prefix
    streams: bool = True
    keep_alive: bytes = b": keep-alive\n\n"
    capped: bool = True  # whether calls generate tokens, and so have an output cap
    errors: Errors = errors


CHAT: Final = Dialect(name="chat", path=b"/v1/chat/completions", upstream=b"/chat/completions")
COMPLETIONS: Final = Dialect(name="completions", path=b"/v1/completions", upstream=b"/completions")
EMBEDDINGS: Final = Dialect(
    name="embeddings", path=b"/v1/embeddings", upstream=b"/embeddings", streams=False, capped=False
)
BY_PATH: Final = {dialect.path: dialect for dialect in (CHAT, COMPLETIONS, EMBEDDINGS)}
