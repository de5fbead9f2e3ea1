"""How is a chat chunk repaired while every byte that is right stays as the engine wrote it?"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from stoker.wire.scan.calls import Seen

_FINISH: Final = re.compile(rb'("finish_reason"\s*:\s*)"stop"')
_EMPTY: Final = re.compile(rb'("arguments"\s*:\s*)(?:""|null)')
_ABSENT: Final = msgspec.Raw(b"")


class _Delta(msgspec.Struct):
    tool_calls: msgspec.Raw = _ABSENT


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


class Mends:
    """What is wrong with one event."""

    __slots__ = ("empty", "finish", "gave_up", "pieces")

    def __init__(self) -> None:
        self.pieces: dict[int, list[Seen]] = {}  # by choice: pieces of calls that must be written again
        self.empty: dict[int, list[int]] = {}  # by choice: calls that end without arguments
        self.finish = False  # the answer ended with tool calls and does not say so
        self.gave_up = False  # the finish reason says that there is no answer

    def write(self, payload: bytes) -> list[bytes]:
        """Write the event again, behind what had to come before it."""
        before = [arguments(payload, choice, indexes) for choice, indexes in self.empty.items()]
        for choice, seen in self.pieces.items():
            payload = calls(payload, choice, seen)
        return [*before, finish(payload) if self.finish else payload]


class _Head(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw(b'""')
    created: msgspec.Raw = msgspec.Raw(b"0")
    model: msgspec.Raw = msgspec.Raw(b'""')


def calls(payload: bytes, choice: int, seen: Sequence[Seen]) -> bytes:
    """Write the pieces of one choice's calls as the dialect says."""
    chunk = msgspec.json.decode(payload, type=_Chunk)
    raw = next(bytes(c.delta.tool_calls) for c in chunk.choices if c.index == choice and c.delta is not None)
    pieces: list[dict[str, Any]] = msgspec.json.decode(raw)
    fixed = [_call(piece, what) for piece, what in zip(pieces, seen, strict=True)]
    return payload.replace(raw, msgspec.json.encode(fixed), 1)


def _call(piece: dict[str, Any], seen: Seen) -> dict[str, Any]:
    rest = {name: value for name, value in piece.items() if name not in ("index", "id", "type", "function")}
    function = dict(piece.get("function") or {})
    if not seen.begins or function.get("name") is None:
        function.pop("name", None)
    if seen.wrong == "tool_arguments" or not isinstance(function.get("arguments"), str):
        function["arguments"] = msgspec.json.decode(b'"%b"' % seen.piece)
    if not seen.begins:
        return {"index": seen.index, **rest, "function": function}
    return {"index": seen.index, "id": seen.id, "type": "function", **rest, "function": function}


def finish(payload: bytes) -> bytes:
    """Write that the answer ended with tool calls; quotes inside a text are escaped, so only the member matches."""
    return _FINISH.sub(rb'\1"tool_calls"', payload)


def arguments(payload: bytes, choice: int, indexes: Sequence[int]) -> bytes:
    """Write the chunk that was never sent: calls without arguments have the empty object."""
    head = msgspec.json.decode(payload, type=_Head)
    calls_ = b",".join(b'{"index":%d,"function":{"arguments":"{}"}}' % index for index in indexes)
    return (
        b'{"id":%b,"object":"chat.completion.chunk","created":%b,"model":%b,"choices":[{"index":%d,'
        b'"delta":{"tool_calls":[%b]},"logprobs":null,"finish_reason":null}]}'
        % (bytes(head.id), bytes(head.created), bytes(head.model), choice, calls_)
    )


def whole(body: bytes, *, empty: bool) -> bytes:
    """Write an answer in one piece as the dialect says."""
    return _EMPTY.sub(rb'\1"{}"', finish(body)) if empty else finish(body)
