"""What does an engine say in messages events? They pass untouched, or a writer gets what is said.

An answer is whole when ``message_delta`` gave a stop reason and ``message_stop`` came: the SDK raises on neither a
clean end without them nor on ``message_stop`` alone, so who follows must.
"""

from typing import Final

import msgspec

from stoker.facts.ending import Outcome
from stoker.wire.follow import Follow, readable
from stoker.wire.scan.heard import Heard, is_text, said
from stoker.wire.scan.how import How
from stoker.wire.scan.message import Message as Together
from stoker.wire.sse import data_of
from stoker.wire.usage import Details, Usage
from stoker.wire.write.writer import inside

_ABSENT: Final = msgspec.Raw(b"")


class Counts(msgspec.Struct):
    """Usage as this dialect reports it: the prompt is what was new, what was cached and what was written to a cache."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Block(msgspec.Struct):
    """One block of content, or its beginning."""

    type: str = ""
    id: str = ""
    name: str = ""
    text: msgspec.Raw = _ABSENT
    thinking: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT


class Delta(msgspec.Struct):
    """What an event adds to a block, or to the message."""

    text: msgspec.Raw = _ABSENT
    thinking: msgspec.Raw = _ABSENT
    partial_json: msgspec.Raw = _ABSENT
    stop_reason: str | None = None
    stop_sequence: str | None = None


class Message(msgspec.Struct):
    """A whole message, or its shell."""

    type: str = ""
    content: list[Block] | None = None
    usage: Counts | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class Event(msgspec.Struct):
    """One event."""

    type: str = ""
    index: int = 0
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    usage: Counts | None = None
    error: msgspec.Raw = _ABSENT


_decode = msgspec.json.Decoder(Event).decode
_whole = msgspec.json.Decoder(Message).decode
_OUTCOMES: Final = {
    "max_tokens": Outcome.LENGTH,
    "model_context_window_exceeded": Outcome.LENGTH,
    "tool_use": Outcome.TOOL_CALLS,
    "refusal": Outcome.REFUSAL,
}
_WORDS: Final = {Outcome.LENGTH: "length", Outcome.TOOL_CALLS: "tool_calls", Outcome.REFUSAL: "content_filter"}


class Messages:
    """The messages dialect of an engine."""

    __slots__ = ("_body", "_calls", "_counts", "_ended", "_heard", "_passes", "_started", "_together", "_writer")

    def __init__(self, how: How) -> None:
        self._writer = how.writer
        self._together = Together() if how.aggregate and how.writer is None else None
        self._passes = self._writer is None and self._together is None
        self._heard = Heard(writer=how.writer, tools=how.tools, engine=how.engine)
        self._calls: set[int] = set()
        self._counts = Counts()
        self._body = b""
        self._started = False
        self._ended = False  # it was said why

    def event(self, follow: Follow, event: bytes, now: float) -> bytes:
        """Look at one event and give what goes on."""
        payload = data_of(event)
        if payload is None:
            return event if self._passes else b""
        try:
            seen = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            follow.broken = follow.broken or not (self._passes and readable(payload))
            return event if self._passes else b""
        if seen.type != "ping":
            follow.chunks += 1
            if seen.type == "message_stop" and not self._stop(follow):
                return b""
            self._see(follow, seen, now)
        return event if self._passes else self._changed(follow, payload, now)

    def _stop(self, follow: Follow) -> bool:
        """Take the terminator; False: the message never said why it ended, so it did not."""
        follow.done = True
        follow.broken = follow.broken or not (self._ended or follow.error is not None)
        follow.finished = not follow.broken
        return not follow.broken

    def _changed(self, follow: Follow, payload: bytes, now: float) -> bytes:
        """Write what an event becomes where it does not simply pass."""
        writer = self._writer
        if writer is None:
            self._keep(follow, payload)
            return b""
        if follow.error is not None:
            return writer.take() + follow.in_band()
        return self.close(follow, now) if follow.done else writer.take()

    def _keep(self, follow: Follow, payload: bytes) -> None:
        if self._together is not None and follow.error is None and not follow.broken:
            try:
                self._together.add(payload)
            except (msgspec.DecodeError, UnicodeDecodeError, LookupError):  # or a delta of a block that never began
                follow.broken = True

    def _see(self, follow: Follow, seen: Event, now: float) -> None:
        if seen.message is not None:
            self._start()
            self._count(follow, seen.message.usage)
        if seen.delta is not None:
            self._delta(follow, seen.index, seen.delta, now)
        elif seen.content_block is not None:
            self._block(follow, seen.index, seen.content_block, now)
        if seen.usage is not None:
            self._count(follow, seen.usage)
        if seen.type == "error":
            follow.error = bytes(seen.error) or b"null"

    def _start(self) -> None:
        if self._writer is not None and not self._started:
            self._started = True
            self._writer.start()

    def _count(self, follow: Follow, counts: Counts | None) -> None:
        """Take a report: each is about the whole answer so far, and leaves out what has not changed."""
        if counts is None:
            return
        have = self._counts
        for name in Counts.__struct_fields__:
            value = getattr(counts, name)
            if value is not None:
                setattr(have, name, value)
        cached = have.cache_read_input_tokens or 0
        prompt = None
        if have.input_tokens is not None:
            prompt = have.input_tokens + cached + (have.cache_creation_input_tokens or 0)
        output = have.output_tokens if self._ended or have.output_tokens else None  # 0 at the start says nothing
        follow.usage = Usage(
            prompt_tokens=prompt, completion_tokens=output, prompt_tokens_details=Details(cached_tokens=cached)
        )

    def _delta(self, follow: Follow, index: int, delta: Delta, now: float) -> None:
        if said(delta.text):
            self._heard.content(follow, bytes(delta.text), now)
        elif said(delta.thinking):
            self._heard.reasoning(follow, bytes(delta.thinking))
        elif said(delta.partial_json):
            self._arguments(follow, index, bytes(delta.partial_json)[1:-1], now)
        elif delta.stop_reason is not None:
            self._finished(follow, delta.stop_reason, delta.stop_sequence, now)

    def _block(self, follow: Follow, index: int, block: Block, now: float) -> None:
        if block.type == "tool_use":
            follow.called(now)
            follow.argument(0, index, b"")
            if self._writer is not None:
                self._calls.add(index)
                self._writer.tool(index, block.id, block.name)
            given = bytes(block.input)
            if given not in (b"", b"{}", b"null"):  # some engines send the whole input at once
                self._arguments(follow, index, inside(given.decode("utf-8", "replace")), now)
        elif said(block.text):
            self._heard.content(follow, bytes(block.text), now)
        elif said(block.thinking):
            self._heard.reasoning(follow, bytes(block.thinking))
        elif block.type == "redacted_thinking":
            follow.thought()

    def _arguments(self, follow: Follow, index: int, piece: bytes, now: float) -> None:
        follow.called(now)
        follow.argument(0, index, piece)
        if self._writer is None:
            return
        if index in self._calls and is_text(piece):
            self._writer.arguments(index, piece)
        else:  # of a call whose beginning was lost
            follow.broken = True

    def _finished(self, follow: Follow, reason: str, sequence: str | None, now: float) -> None:
        self._heard.rest(follow, now)
        self._ended = True  # but the answer is whole only with the event that stops the message
        follow.finish = reason
        follow.outcome = _OUTCOMES.get(reason, Outcome.COMPLETE)
        if self._writer is not None:
            self._writer.end(_WORDS.get(follow.outcome, "stop"), sequence or "")

    def close(self, follow: Follow, now: float) -> bytes:  # noqa: ARG002 -- other dialects look at it
        """Write the end of a translated answer; without ``message_stop`` there is none."""
        if self._writer is None or not follow.done or follow.broken:
            return b""
        self._start()
        self._writer.close(follow.used())
        return self._writer.take()

    def ends(self, data: bytes) -> bool:
        """Whether data is a whole event."""
        return readable(data)

    def whole(self, follow: Follow, body: bytes, now: float) -> bool:
        """Read a message that came in one piece."""
        self._body = body
        try:
            message = _whole(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._writer is None and readable(body)
        if message.type != "message":
            return self._writer is None
        self._start()
        for index, block in enumerate(message.content or ()):
            self._block(follow, index, block, now)
        if message.stop_reason is not None:
            self._finished(follow, message.stop_reason, message.stop_sequence, now)
        self._count(follow, message.usage)
        self._stop(follow)
        self.close(follow, now)
        return True

    def body(self, follow: Follow) -> bytes:  # noqa: ARG002 -- other dialects look at it
        """Write the whole answer."""
        if self._writer is not None:
            return self._writer.body()
        return self._body if self._together is None or self._body else self._together.body()
