"""Responses: items that are added, filled and done, inside a response that is whole at the end."""

from collections.abc import Iterator, Sequence

from stoker.base.json import Json, JsonObject
from stoker.rehearse.dialects.base import CREATED, Subject, event
from stoker.rehearse.said import Arguments, Call, Close, Counts, Said, Text, Thought


class Responses:
    """Writes one answer. An item grows in ``_item`` until another one begins or the answer ends."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._number = -1
        self._output: list[Json] = []
        self._item: JsonObject = {}
        self._kind = ""
        self._text = ""

    def start(self, counts: Counts) -> bytes:
        """Open the response."""
        del counts
        opened: JsonObject = {"response": self._response("in_progress")}
        return self._event("created", opened) + self._event("in_progress", opened)

    def said(self, piece: Said) -> bytes:
        """Write one piece, in an item of its kind."""
        match piece:
            case Text(text=text):
                opened = self._begin("message", {"role": "assistant", "content": []}, part=_output_text(""))
                return opened + self._grow("output_text.delta", text, content_index=0, logprobs=[])
            case Thought(text=text):
                part: JsonObject = {"type": "reasoning_text", "text": ""}
                opened = self._begin("reasoning", {"summary": [], "content": []}, part=part)
                return opened + self._grow("reasoning_text.delta", text, content_index=0)
            case Call():
                return self._begin("function_call", {"call_id": piece.id, "name": piece.name, "arguments": ""})
            case Arguments(piece=text):
                return self._grow("function_call_arguments.delta", text) if text else b""

    def _begin(self, kind: str, item: JsonObject, *, part: JsonObject | None = None) -> bytes:
        """Open an item; text and reasoning go on in the one that is open, each call has one of its own."""
        if self._kind == kind and part is not None:
            return b""
        before = self._finish()
        number = self._subject.request.number
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        self._kind, self._text = kind, ""
        self._item = {"id": f"{prefix}_{number}_{len(self._output)}", "type": kind, "status": "in_progress", **item}
        added = self._event("output_item.added", {**self._place(), "item": self._item})
        if part is None:
            return before + added
        return before + added + self._event("content_part.added", {**self._where(), "content_index": 0, "part": part})

    def _grow(self, name: str, piece: str, **more: Json) -> bytes:
        self._text += piece
        return self._event(name, {**self._where(), **more, "delta": piece})

    def _finish(self) -> bytes:
        """End the open item, and keep it for the whole response."""
        if not self._kind:
            return b""
        kind, text, where = self._kind, self._text, self._where()
        place = self._place()
        done = {**self._item, "status": "completed", **_filled(kind, text)}
        self._output.append(done)
        self._kind = ""
        return self._filled(kind, text, where) + self._event("output_item.done", {**place, "item": done})

    def _filled(self, kind: str, text: str, where: JsonObject) -> bytes:
        """Say that the content of an item is whole."""
        if kind == "function_call":
            told: JsonObject = {"name": self._item["name"], "arguments": text or "{}"}
            return self._event("function_call_arguments.done", {**where, **told})
        at: JsonObject = {**where, "content_index": 0}
        extra: JsonObject = {"logprobs": []} if kind == "message" else {}
        name = "output_text.done" if kind == "message" else "reasoning_text.done"
        ended = self._event(name, {**at, **extra, "text": text})
        return ended + self._event("content_part.done", {**at, "part": _part(kind, text)})

    def _place(self) -> JsonObject:
        wrong = self._subject.deltas("no_index") and self._kind == "function_call"
        return {} if wrong else {"output_index": len(self._output)}

    def _where(self) -> JsonObject:
        return {**self._place(), "item_id": self._item["id"]}

    def close(self, close: Close, counts: Counts) -> Iterator[bytes]:
        """End the last item and the response. Without ``finish`` the item never ends, yet the response says it did."""
        subject = self._subject
        item = self._finish()
        if item and not subject.misses("finish"):
            yield item
        if subject.misses("finish"):
            self._output.clear()
        if not subject.misses("done"):
            yield self._event(_state(close), {"response": self._response(_state(close), close=close, counts=counts)})

    def error(self, message: str) -> bytes:
        """Fail the response."""
        error: JsonObject = {"code": self._subject.script.error_code or "server_error", "message": message}
        return self._event("failed", {"response": {**self._response("failed"), "error": error}})

    def whole(self, said: Sequence[Said], close: Close, counts: Counts) -> JsonObject:
        """Write the whole answer."""
        for piece in said:
            self.said(piece)
        self._finish()
        state = "in_progress" if self._subject.misses("finish") else _state(close)
        return self._response(state, close=close, counts=counts)

    def _event(self, name: str, value: JsonObject) -> bytes:
        self._number += 1
        return event(f"response.{name}", {"sequence_number": self._number, **value})

    def _response(self, status: str, *, close: Close | None = None, counts: Counts | None = None) -> JsonObject:
        told = _usage(counts) if counts is not None and not self._subject.misses("usage") else None
        incomplete: Json = {"reason": "max_output_tokens"} if close is not None and close.reason == "length" else None
        return {
            "id": f"resp_{self._subject.request.number}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "model": self._subject.model,
            "output": list(self._output),
            "usage": told,
            "error": None,
            "incomplete_details": incomplete,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
        }


def _state(close: Close) -> str:
    return "incomplete" if close.reason == "length" else "completed"


def _output_text(text: str) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _part(kind: str, text: str) -> JsonObject:
    return _output_text(text) if kind == "message" else {"type": "reasoning_text", "text": text}


def _filled(kind: str, text: str) -> JsonObject:
    if kind == "function_call":
        return {"arguments": text or "{}"}
    return {"content": [_part(kind, text)]}


def _usage(counts: Counts) -> JsonObject:
    return {
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": counts.cached},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.output,
    }
