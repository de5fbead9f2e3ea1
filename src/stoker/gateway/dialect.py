"""How does a client speak to us? Each dialect brings its path, its errors, and the ways to reach an engine."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from stoker.wire import errors
from stoker.wire.say import anthropic_errors, responses_errors


class Errors(Protocol):
    """How a family of dialects writes errors; a module of ``wire`` has this shape."""

    def body(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
        """Write an error body."""

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
    capped: bool = True  # whether calls generate tokens, and so have an output cap
    through: tuple[str, ...] = ()  # the dialects that it can be translated to, the best first
    errors: Errors = errors


CHAT: Final = Dialect(
    name="chat", path=b"/v1/chat/completions", upstream=b"/chat/completions", through=("messages", "responses")
)
COMPLETIONS: Final = Dialect(name="completions", path=b"/v1/completions", upstream=b"/completions")
EMBEDDINGS: Final = Dialect(
    name="embeddings", path=b"/v1/embeddings", upstream=b"/embeddings", streams=False, capped=False
)
RESPONSES: Final = Dialect(
    name="responses",
    path=b"/v1/responses",
    upstream=b"/responses",
    through=("chat", "messages"),
    errors=responses_errors,
)
MESSAGES: Final = Dialect(
    name="messages",
    path=b"/v1/messages",
    upstream=b"/messages",
    through=("chat", "responses"),
    errors=anthropic_errors,
)
RERANK: Final = Dialect(name="rerank", path=b"/v1/rerank", upstream=b"/rerank", streams=False, capped=False)
COUNT_TOKENS: Final = Dialect(
    name="count_tokens",
    path=b"/v1/messages/count_tokens",
    upstream=b"/messages/count_tokens",
    streams=False,
    capped=False,
    errors=anthropic_errors,
)
ALL: Final = (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES, RERANK, COUNT_TOKENS)
BY_PATH: Final = {dialect.path: dialect for dialect in ALL}
BY_NAME: Final = {dialect.name: dialect for dialect in ALL}


class _Asked(Protocol):
    """A request as far as its family shows."""

    surface: Dialect | None
    path: str


def family(asked: _Asked) -> Dialect:
    """Say in whose words an error is told: by the dialect, or on other paths by what the path looks like."""
    return asked.surface or (MESSAGES if asked.path.startswith("/v1/messages") else CHAT)


def switch(dialect: Dialect) -> str:
    """Name the entry in a gateway's list of dialects that opens a surface."""
    return MESSAGES.name if dialect is COUNT_TOKENS else dialect.name


def spoken(dialect: Dialect, native: Collection[str]) -> str:
    """Choose how an engine that speaks ``native`` dialects is asked; empty: it cannot be."""
    if dialect.name in native or (dialect is COUNT_TOKENS and MESSAGES.name in native):
        return dialect.name
    return next((name for name in dialect.through if name in native), "")
