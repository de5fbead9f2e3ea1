"""What every dialect can write, and the facts that each answer carries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from stoker.base.json import JsonObject
from stoker.rehearse.request import Request
from stoker.rehearse.said import Close, Counts, Said
from stoker.rehearse.script import Script

CREATED: Final = 1_700_000_000
encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One answer: to which request, by which script, under which model's name."""

    request: Request
    script: Script
    model: str

    def misses(self, ending: str) -> bool:
        """Tell whether the script leaves out this part of the ending."""
        return ending in self.script.missing

    def deltas(self, fault: str) -> bool:
        """Tell whether the pieces of calls are written wrongly in this way."""
        return fault in self.script.tool_deltas


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer that is an error. ``kind`` and ``extra`` are the engine's own words."""

    status: int
    message: str
    kind: str = "server_error"
    param: str | None = None
    extra: tuple[tuple[str, int], ...] = ()


class Writer(Protocol):
    """Writes one answer in one dialect. The stream's methods are called in the order in which they stand here."""

    def start(self, counts: Counts) -> bytes:
        """Write what comes before the first token."""

    def said(self, piece: Said) -> bytes:
        """Write one piece."""

    def close(self, close: Close, counts: Counts) -> Iterator[bytes]:
        """Write the ending, one frame after the other, less what the script leaves out."""

    def error(self, message: str) -> bytes:
        """Write an error inside the stream."""

    def whole(self, said: Sequence[Said], close: Close, counts: Counts) -> JsonObject:
        """Write the answer that a client without streaming gets."""


def data(value: object) -> bytes:
    """Write one event that has no name."""
    return b"data: " + encode(value) + b"\n\n"


def event(name: str, value: JsonObject) -> bytes:
    """Write one event with its name."""
    return b"event: " + name.encode() + b"\ndata: " + encode({"type": name, **value}) + b"\n\n"


def refusal_body(dialect: str, refusal: Refusal) -> bytes:
    """Write an error in the shape of its dialect; engines keep their own word for its type."""
    if dialect in ("messages", "count_tokens"):
        return encode({"type": "error", "error": {"type": refusal.kind, "message": refusal.message}})
    error: JsonObject = {"message": refusal.message, "type": refusal.kind, "param": refusal.param}
    return encode({"error": {**error, "code": refusal.status, **dict(refusal.extra)}})
