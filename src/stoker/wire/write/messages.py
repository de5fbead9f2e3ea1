"""How is an answer written as messages events, or as one message?

``message_delta`` is written when everything is known: engines report their usage after the finish reason, and whoever
writes it with the finish reason reports no tokens.
"""

from typing import Any, Final

import msgspec

from stoker.wire.usage import Usage
from stoker.wire.write.parts import Kind, Parts
from stoker.wire.write.writer import plain, quoted

STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
SIGNATURE: Final = "c3Rva2Vy"  # clients hand a thinking block back only when it is signed; nobody here checks it
_BLOCK_STOP: Final = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_BLOCK_START: Final = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
)
_DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'
_END: Final = b'"}}\n\n'
_EMPTY: Final = {
    Kind.TEXT: b'{"type":"text","text":""}',
    Kind.REASONING: b'{"type":"thinking","thinking":"","signature":""}',
}
_MEMBER: Final = {Kind.TEXT: b'"text_delta","text":"', Kind.REASONING: b'"thinking_delta","thinking":"'}


def usage_of(usage: Usage) -> bytes:
    """Write the usage member: the prompt without what came from the cache."""
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details is not None else 0
    prompt = max(0, (usage.prompt_tokens or 0) - cached)
    return b'{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d}' % (
        prompt,
        cached,
        usage.completion_tokens or 0,
    )


def stop_of(finish: str, sequence: str) -> bytes:
    """Write the members that say why it ended."""
    if finish == "stop" and sequence:
        return b'"stop_reason":"stop_sequence","stop_sequence":%b' % quoted(sequence)
    return b'"stop_reason":%b,"stop_sequence":null' % quoted(STOP_REASONS.get(finish, "end_turn"))


class Events:
    """Writes events."""

    __slots__ = ("_blocks", "_calls", "_delta", "_finish", "_id", "_kind", "_model", "_out", "_sequence")

    def __init__(self, *, id: str, model: str) -> None:  # noqa: A002
        self._id = id
        self._model = model
        self._out: list[bytes] = []
        self._blocks = 0  # how many were opened
        self._kind: Kind | None = None  # of the open one
        self._delta = b""  # how its deltas begin
        self._calls: dict[int, bytes] = {}
        self._finish = self._sequence = ""

    def start(self) -> None:
        """Write the shell of the message; usage is not known yet."""
        self._out.append(
            b'event: message_start\ndata: {"type":"message_start","message":{"id":%b,"type":"message",'
            b'"role":"assistant","model":%b,"content":[],"stop_reason":null,"stop_sequence":null,"usage":%b}}\n\n'
            % (quoted(self._id), quoted(self._model), usage_of(Usage()))
        )

    def text(self, piece: bytes, logprobs: bytes = b"") -> None:  # noqa: ARG002 -- the dialect has none
        """Write text."""
        if self._kind is not Kind.TEXT:
            self._open(Kind.TEXT, _EMPTY[Kind.TEXT])
            self._delta += _MEMBER[Kind.TEXT]
        self._out.append(self._delta + piece + _END)

    def refusal(self, piece: bytes) -> None:
        """Write text with which the model refuses: here it is text, and the stop reason says it."""
        self.text(piece)

    def reasoning(self, piece: bytes) -> None:
        """Write reasoning."""
        if self._kind is not Kind.REASONING:
            self._open(Kind.REASONING, _EMPTY[Kind.REASONING])
            self._delta += _MEMBER[Kind.REASONING]
        self._out.append(self._delta + piece + _END)

    def tool(self, index: int, id: str, name: str) -> None:  # noqa: A002
        """Begin a call."""
        block = b'{"type":"tool_use","id":%b,"name":%b,"input":{}}' % (quoted(id), quoted(name))
        self._open(Kind.TOOL, block)
        self._calls[index] = self._delta + b'"input_json_delta","partial_json":"'

    def arguments(self, index: int, piece: bytes) -> None:
        """Write a piece of arguments; clients put them together by the number of the block."""
        self._out.append(self._calls[index] + piece + _END)

    def end(self, finish: str, sequence: str = "") -> None:
        """Keep why it ended until usage is known."""
        self._finish = "tool_calls" if self._calls and finish == "stop" else finish
        self._sequence = sequence

    def close(self, usage: Usage) -> None:
        """Write the end."""
        self._shut()
        self._out.append(
            b'event: message_delta\ndata: {"type":"message_delta","delta":{%b},"usage":%b}\n\n'
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
            % (stop_of(self._finish, self._sequence), usage_of(usage))
        )

    def _open(self, kind: Kind, block: bytes) -> None:
        self._shut()
        self._out.append(_BLOCK_START % (self._blocks, block))
        self._delta = _DELTA % self._blocks
        self._kind = kind
        self._blocks += 1

    def _shut(self) -> None:
        if self._kind is None:
            return
        number = self._blocks - 1
        if self._kind is Kind.REASONING:
            self._out.append(_DELTA % number + b'"signature_delta","signature":"%b' % SIGNATURE.encode() + _END)
        self._out.append(_BLOCK_STOP % number)
        self._kind = None

    def take(self) -> bytes:
        """Give the frames."""
        out = self._out
        if len(out) == 1:
            return out.pop()
        data = b"".join(out)
        out.clear()
        return data

    def body(self) -> bytes:
        """Have nothing: everything went out."""
        return b""


def message(parts: Parts, *, id: str, model: str) -> bytes:  # noqa: A002
    """Write an answer in one piece."""
    content = b",".join(_block(part.kind, bytes(part.text), part.id, part.name) for part in parts.all)
    return b'{"id":%b,"type":"message","role":"assistant","model":%b,"content":[%b],%b,"usage":%b}' % (
        quoted(id),
        quoted(model),
        content,
        stop_of(parts.stop(), parts.sequence),
        usage_of(parts.usage),
    )


def _block(kind: Kind, text: bytes, id: str, name: str) -> bytes:  # noqa: A002
    if kind is Kind.TOOL:
        return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (quoted(id), quoted(name), object_of(text))
    if kind is Kind.REASONING:
        return b'{"type":"thinking","thinking":"%b","signature":"%b"}' % (text, SIGNATURE.encode())
    return b'{"type":"text","text":"%b"}' % text


def object_of(piece: bytes) -> bytes:
    """Write arguments as the object that this dialect wants; what is none goes on as text, for the client to refuse."""
    text = plain(piece)
    try:
        value: Any = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        value = None
    if isinstance(value, dict):
        return text.encode() or b"{}"
    return msgspec.json.encode({"unparsed_arguments": text})
