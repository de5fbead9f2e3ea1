"""Messages, the dialect of Anthropic's clients: blocks that are opened, filled and closed."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.rehearse.dialects.base import Subject, event
from stoker.rehearse.said import Arguments, Call, Close, Counts, Said, Text, Thought, calls_of, text_of, thoughts_of

_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_SIGNATURE: Final = "c2NyaXB0ZWQ="


class Messages:
    """Writes one answer."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._open = ""  # the kind of block that is open
        self._index = -1

    def start(self, counts: Counts) -> bytes:
        """Open the message, with what is known of its usage."""
        spent = _usage(counts, output=0)
        nothing: JsonObject = {"input_tokens": 0, "output_tokens": 0}
        told = nothing if self._subject.misses("usage") else spent
        return event("message_start", {"message": {**self._envelope(), "content": [], "usage": told}})

    def said(self, piece: Said) -> bytes:
        """Write one piece, in a block of its kind."""
        match piece:
            case Text(text=text):
                opened = self._block("text", {"type": "text", "text": ""})
                return opened + self._delta({"type": "text_delta", "text": text})
            case Thought(text=text):
                opened = self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                return opened + self._delta({"type": "thinking_delta", "thinking": text})
            case Call():
                block: JsonObject = {"type": "tool_use", "id": _id(piece.id), "name": piece.name, "input": {}}
                return self._block(piece.id, block)
            case Arguments(piece=text):
                return self._delta({"type": "input_json_delta", "partial_json": text}) if text else b""

    def _block(self, kind: str, block: JsonObject) -> bytes:
        """Open a block unless one of its kind is open; the one before it is closed first."""
        if self._open == kind:
            return b""
        closed = self._closed()
        self._open = kind
        self._index += 1
        return closed + event("content_block_start", {**self._place(), "content_block": block})

    def _closed(self) -> bytes:
        if not self._open:
            return b""
        signed = self._delta({"type": "signature_delta", "signature": _SIGNATURE}) if self._open == "thinking" else b""
        self._open = ""
        return signed + event("content_block_stop", {"index": self._index})

    def _delta(self, delta: JsonObject) -> bytes:
        return event("content_block_delta", {**self._place(), "delta": delta})

    def _place(self) -> JsonObject:
        wrong = self._subject.deltas("no_index") and self._open.startswith("call_")
        return {} if wrong else {"index": self._index}

    def close(self, close: Close, counts: Counts) -> Iterator[bytes]:
        """Close the block, say why it ends and what it used, and stop."""
        subject = self._subject
        if block := self._closed():
            yield block
        if not subject.misses("finish"):
            told = {} if subject.misses("usage") else {"usage": _usage(counts, output=counts.output)}
            yield event("message_delta", {"delta": _reason(close), **told})
        if not subject.misses("done"):
            yield event("message_stop", {})

    def error(self, message: str) -> bytes:
        """Write an error inside the stream."""
        return event("error", {"error": {"type": self._subject.script.error_code or "api_error", "message": message}})

    def whole(self, said: Sequence[Said], close: Close, counts: Counts) -> JsonObject:
        """Write the whole answer."""
        blocks: list[Json] = []
        if thoughts := thoughts_of(said):
            blocks.append({"type": "thinking", "thinking": thoughts, "signature": _SIGNATURE})
        if text := text_of(said):
            blocks.append({"type": "text", "text": text})
        blocks += [
            {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": _input(call.arguments)}
            for call in calls_of(said)
        ]
        finish = {} if self._subject.misses("finish") else _reason(close)
        used = {} if self._subject.misses("usage") else {"usage": _usage(counts, output=counts.output)}
        return {**self._envelope(), "content": blocks, **finish, **used}

    def _envelope(self) -> JsonObject:
        return {
            "id": f"msg_{self._subject.request.number}",
            "type": "message",
            "role": "assistant",
            "model": self._subject.model,
            "stop_reason": None,
            "stop_sequence": None,
        }


def _id(call: str) -> str:
    return call.replace("call_", "toolu_")


def _reason(close: Close) -> JsonObject:
    if close.stop:
        return {"stop_reason": "stop_sequence", "stop_sequence": close.stop}
    return {"stop_reason": _REASONS[close.reason], "stop_sequence": None}


def _input(arguments: str) -> Json:
    """Read a call's arguments; half a call has none that could be read."""
    try:
        return msgspec.json.decode(arguments)  # type: ignore[no-any-return]
    except msgspec.DecodeError:
        return {}


def _usage(counts: Counts, *, output: int) -> JsonObject:
    return {
        "input_tokens": counts.prompt - counts.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
        "output_tokens": output,
    }
