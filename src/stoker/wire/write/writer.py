"""What does a reader tell a writer? The stream between dialects, as calls."""

from typing import Protocol

import msgspec

from stoker.wire.usage import Usage


class Writer(Protocol):
    """Writes one answer in a client's dialect."""

    def start(self) -> None:
        """The engine has begun."""

    def text(self, piece: bytes, logprobs: bytes = b"") -> None:
        """Visible text; ``logprobs``: the JSON list of its tokens."""

    def refusal(self, piece: bytes) -> None:
        """Text with which the model refuses."""

    def reasoning(self, piece: bytes) -> None:
        """Hidden reasoning."""

    def tool(self, index: int, id: str, name: str) -> None:  # noqa: A002 -- the dialects' word
        """A tool call begins."""

    def arguments(self, index: int, piece: bytes) -> None:
        """A piece of the arguments of a call."""

    def end(self, finish: str, sequence: str = "") -> None:
        """The engine said why it stopped: stop, length, tool_calls or content_filter; and at which stop sequence."""

    def close(self, usage: Usage) -> None:
        """Everything is known: write what ends the answer."""

    def take(self) -> bytes:
        """Give the frames that are ready."""

    def body(self) -> bytes:
        """Give the whole answer."""


def inside(text: str) -> bytes:
    """Write text as the inside of a JSON string."""
    return msgspec.json.encode(text)[1:-1]


def quoted(text: str) -> bytes:
    """Write text as a JSON string."""
    return msgspec.json.encode(text)


def plain(piece: bytes) -> str:
    """Read the inside of a JSON string."""
    try:
        return msgspec.json.decode(b'"%b"' % piece, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return piece.decode("utf-8", "replace")
