"""What does an engine say in chat (or completions) chunks? The bytes themselves pass by untouched.

Only one thing is ever taken out: the usage chunk that we asked for and the client did not.
"""

from typing import Final

import msgspec

from stoker.facts.ending import Outcome
from stoker.wire.aggregate import Aggregate
from stoker.wire.follow import Follow, readable
from stoker.wire.sse import data_of
from stoker.wire.usage import Usage, joined

_ABSENT: Final = msgspec.Raw(b"")  # not None: msgspec would then take nothing but null


class Function(msgspec.Struct):
    """The function of a call, or a piece of it."""

    arguments: str | None = None


class Tool(msgspec.Struct):
    """A call, or a piece of it."""

    index: int = 0
    function: Function | None = None


class Delta(msgspec.Struct):
    """What a chunk adds to a choice."""

    content: msgspec.Raw = _ABSENT
    reasoning_content: msgspec.Raw = _ABSENT
    reasoning: msgspec.Raw = _ABSENT
    refusal: str | None = None
    tool_calls: list[Tool] | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk, or of a whole answer."""

    index: int = 0
    finish_reason: str | None = None
    delta: Delta | None = None
    message: Delta | None = None
    text: msgspec.Raw = _ABSENT


class Chunk(msgspec.Struct):
    """One chunk, or a whole answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = _ABSENT


_decode = msgspec.json.Decoder(Chunk).decode
_NOTHING: Final = (b"", b'""', b"null", b"[]")
_FINISH: Final = {
    "length": Outcome.LENGTH,
    "tool_calls": Outcome.TOOL_CALLS,
    "function_call": Outcome.TOOL_CALLS,
    "content_filter": Outcome.REFUSAL,
}


def said(raw: msgspec.Raw) -> bool:
    """Whether a member says anything."""
    return bytes(raw) not in _NOTHING


class Chat:
    """The chat dialect of an engine."""

    __slots__ = ("_aggregate", "_body", "_ended", "_reported", "_reports", "_strip", "_top")

    def __init__(self, *, strip_usage: bool, aggregate: bool) -> None:
        self._strip = strip_usage
        self._aggregate = Aggregate() if aggregate else None
        self._body = b""
        self._ended = 0
        self._top = 0  # the highest choice seen: with n > 1 each must finish
        self._reported = 0  # the weightiest kind of usage report so far: running, of a choice, of the answer
        self._reports = 0  # how many reports of the weightiest kind there are in the usage

    def event(self, follow: Follow, event: bytes, now: float) -> bytes:
        """Look at one event; what is ours does not go on."""
        payload = data_of(event)
        if payload is None:
            return event if self._aggregate is None else b""
        if payload == b"[DONE]":
            follow.done = True
            return event if self._aggregate is None else b""
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            follow.broken = follow.broken or not readable(payload)
            return event if self._aggregate is None else b""
        follow.chunks += 1
        if said(chunk.error):
            follow.error = bytes(chunk.error)
        for choice in chunk.choices or ():
            self._choice(follow, choice, now)
        if chunk.usage is not None:
            self._use(follow, chunk.usage, chunk.choices)
            if self._strip and not chunk.choices:
                return b""
        if self._aggregate is None:
            return event
        if not follow.broken and follow.error is None:
            self._aggregate.add(payload)
        return b""

    def _use(self, follow: Follow, report: Usage, choices: list[Choice] | None) -> None:
        """Take a report on usage; see `stoker.wire.usage` for the three kinds."""
        kind = 1 if choices and any(choice.finish_reason is not None for choice in choices) else 0 if choices else 2
        if kind < self._reported:
            return
        if kind == self._reported and kind and follow.usage is not None:
            follow.usage = joined(follow.usage, report, one_prompt=kind == 2)
            self._reports += 1
        else:
            follow.usage, self._reports, self._reported = report, 1, kind

    def _choice(self, follow: Follow, choice: Choice, now: float) -> None:
        if choice.index > self._top:
            self._top = choice.index
            follow.finished = False
        if choice.finish_reason is not None:
            self._ended += 1
            follow.finished = self._ended > self._top
            follow.finish = choice.finish_reason
            follow.outcome = _FINISH.get(choice.finish_reason, Outcome.COMPLETE)
        delta = choice.delta or choice.message
        if delta is not None:
            if said(delta.reasoning_content) or said(delta.reasoning):
                follow.thought()
            if said(delta.content) or delta.refusal:
                follow.spoke(now)
            if delta.tool_calls:
                follow.called(now)
                for tool in delta.tool_calls:
                    follow.argument(choice.index, tool.index, tool.function.arguments if tool.function else None)
        elif said(choice.text):
            follow.spoke(now)

    def whole(self, follow: Follow, body: bytes, now: float) -> bool:
        """Read an answer that came in one piece; False when it is no JSON."""
        self._body = body
        try:
            chunk = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return readable(body)
        follow.usage = chunk.usage
        for choice in chunk.choices or ():
            self._choice(follow, choice, now)
        return True

    def close(self, follow: Follow) -> bytes:  # noqa: ARG002 -- other dialects need it
        """Owe nothing: the client sees the end as the engine sent it."""
        return b""

    def ends(self, data: bytes) -> bool:
        """Whether data is a whole event."""
        return data == b"[DONE]" or readable(data)

    def body(self, follow: Follow) -> bytes:
        """Write the whole answer."""
        if self._aggregate is None:
            return self._body
        if self._reports > 1:
            tokens = follow.tokens()
            self._aggregate.count(prompt=tokens.prompt, output=tokens.output)
        return self._aggregate.body()
