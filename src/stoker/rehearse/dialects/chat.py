"""Chat completions, and completions, its older sister."""

from collections.abc import Iterator, Sequence

from stoker.base.json import Json, JsonObject
from stoker.rehearse.dialects.base import CREATED, Subject, data
from stoker.rehearse.said import Arguments, Call, Close, Counts, Said, Text, Thought, calls_of, text_of, thoughts_of


class Chat:
    """Writes one answer."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._plain = subject.request.dialect == "completions"
        self._names: dict[int, Call] = {}

    def start(self, counts: Counts) -> bytes:
        """Name the role."""
        del counts
        return b"" if self._plain else self._frame({"role": "assistant", "content": ""})

    def said(self, piece: Said) -> bytes:
        """Write one delta."""
        match piece:
            case Text(text=text):
                return self._frame({"content": text}, token=text)
            case Thought(text=text):
                return self._frame({"reasoning_content": text})
            case Call():
                self._names[piece.index] = piece
                return self._call(piece.index, {"name": piece.name, "arguments": ""}, called=piece)
            case Arguments(index=index, piece=text):
                return self._arguments(index, text)

    def _arguments(self, index: int, piece: str) -> bytes:
        """Write a piece of arguments, and the call's name with it where the script has that fault."""
        subject, function, again = self._subject, dict[str, Json](), None
        if subject.deltas("name_repeated"):
            again = self._names[index]
            function["name"] = again.name
        if subject.deltas("name_null"):
            function["name"] = None
        return self._call(index, {**function, "arguments": piece}, called=again)

    def _call(self, index: int, function: JsonObject, *, called: Call | None = None) -> bytes:
        place: JsonObject = {} if self._subject.deltas("no_index") else {"index": index}
        named: JsonObject = {"id": called.id, "type": "function"} if called is not None else {}
        return self._frame({"tool_calls": [{**place, **named, "function": function}]})

    def close(self, close: Close, counts: Counts) -> Iterator[bytes]:
        """Write the finish reason, the usage where it was asked for, and the terminator."""
        subject = self._subject
        if not subject.misses("finish"):
            yield self._frame({}, finish=close.reason)
        if subject.request.usage and not subject.misses("usage"):
            yield data({**self._envelope(stream=True), "choices": [], "usage": usage(counts)})
        if not subject.misses("done"):
            yield b"data: [DONE]\n\n"

    def error(self, message: str) -> bytes:
        """Write an error as vLLM does: a frame of its own, and the terminator behind it."""
        code = self._subject.script.error_code or 500
        return data({"error": {"message": message, "type": "InternalServerError", "code": code}}) + b"data: [DONE]\n\n"

    def whole(self, said: Sequence[Said], close: Close, counts: Counts) -> JsonObject:
        """Write the whole answer."""
        subject = self._subject
        finish = None if subject.misses("finish") else close.reason
        choice: JsonObject = {"index": 0, **self._message(said), "logprobs": None, "finish_reason": finish}
        if subject.request.logprobs:
            choice["logprobs"] = {"content": [_logprob(p.text) for p in said if isinstance(p, Text)]}
        body: JsonObject = {**self._envelope(stream=False), "choices": [choice]}
        return body if subject.misses("usage") else {**body, "usage": usage(counts)}

    def _message(self, said: Sequence[Said]) -> JsonObject:
        if self._plain:
            return {"text": text_of(said)}
        message: JsonObject = {"role": "assistant", "content": text_of(said) or None}
        if thoughts := thoughts_of(said):
            message["reasoning_content"] = thoughts
        calls: list[Json] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in calls_of(said)
        ]
        return {"message": {**message, "tool_calls": calls} if calls else message}

    def _envelope(self, *, stream: bool) -> JsonObject:
        kind = "text_completion" if self._plain else "chat.completion.chunk" if stream else "chat.completion"
        name = f"chatcmpl-{self._subject.request.number}"
        return {"id": name, "object": kind, "created": CREATED, "model": self._subject.model}

    def _frame(self, delta: JsonObject, *, finish: str | None = None, token: str = "") -> bytes:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        if self._plain:
            choice = {"index": 0, "text": delta.get("content", ""), "finish_reason": finish}
        if token and self._subject.request.logprobs:
            choice["logprobs"] = {"content": [_logprob(token)]}
        return data({**self._envelope(stream=True), "choices": [choice]})


def usage(counts: Counts) -> JsonObject:
    """Write the usage."""
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.prompt + counts.output,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    }


def _logprob(token: str) -> JsonObject:
    raw: list[Json] = list(token.encode())
    return {"token": token, "logprob": -0.5, "bytes": raw, "top_logprobs": []}
