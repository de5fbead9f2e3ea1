"""What does an engine say in responses events? They pass untouched, or a writer gets what is said.

An answer is whole when one of the terminal events came. Once we have shown a sign of life of our own, the engine's
first events are not sent again, and its numbers and its id become ours: the SDK refuses two identities.
"""

import re
from typing import Any, Final

import msgspec

from stoker.facts.ending import Outcome
from stoker.wire.follow import Follow, readable
from stoker.wire.say.response_object import Shell
from stoker.wire.say.voices import Responses as Voice
from stoker.wire.scan.heard import Heard, is_text, said
from stoker.wire.scan.how import How
from stoker.wire.scan.reply import ABSENT, Event, Item, Reply, decode_event, decode_reply, usage_of
from stoker.wire.sse import data_of

_NUMBER: Final = re.compile(rb'("sequence_number"\s*:\s*)\d+')
_ALIVE: Final = frozenset({"response.in_progress", "response.queued"})
_BEGINS: Final = frozenset({"response.created", *_ALIVE})
_TEXT: Final = "response.output_text.delta"
_REFUSAL: Final = "response.refusal.delta"
_REASONING: Final = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_ARGUMENTS: Final = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})


class Responses:
    """The responses dialect of an engine."""

    __slots__ = (
        "_begun",
        "_body",
        "_given",
        "_heard",
        "_items",
        "_ours",
        "_passes",
        "_started",
        "_swap",
        "_voice",
        "_writer",
    )

    def __init__(self, how: How, voice: Voice | None = None) -> None:
        self._writer = how.writer
        self._voice = voice
        self._items: list[bytes] | None = [] if how.aggregate and how.writer is None else None
        self._passes = self._writer is None and self._items is None
        self._heard = Heard(writer=how.writer, tools=how.tools, engine=how.engine)
        self._body = b""
        self._begun: set[int] = set()
        self._given: set[int] = set()  # calls of which arguments have come
        self._started = False
        self._ours: bool | None = None  # whether the client saw a beginning of ours before the engine's first event
        self._swap: tuple[bytes, bytes] | None = None  # the engine's id of the answer, and ours

    def event(self, follow: Follow, event: bytes, now: float) -> bytes:
        """Look at one event and give what goes on."""
        payload = data_of(event)
        if payload is None or payload == b"[DONE]":
            return event if self._passes else b""
        try:
            seen = decode_event(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            follow.broken = follow.broken or not (self._passes and readable(payload))
            return event if self._passes else b""
        if seen.type not in _ALIVE:
            follow.chunks += 1
        self._see(follow, seen, now)
        if follow.error is not None:
            return (self._writer.take() if self._writer is not None else b"") + follow.in_band()
        if self._writer is not None:
            return self.close(follow, now) if follow.done else self._writer.take()
        if self._items is not None:
            if is_text(payload):
                self._keep(self._items, payload, seen)
            else:
                follow.broken = True
            return b""
        return event if self._voice is None else self._numbered(self._voice, event, payload, seen)

    # What it says.

    def _see(self, follow: Follow, seen: Event, now: float) -> None:
        if said(seen.delta):
            self._delta(follow, seen, now)
        elif seen.item is not None:
            self._item(follow, seen.output_index, seen.item, now, begins=seen.type.endswith(".added"))
        elif seen.type in _TERMINAL:
            self._end(follow, seen, now)
        elif seen.type == "response.created":
            self._start()

    def _start(self) -> None:
        if self._writer is not None and not self._started:
            self._started = True
            self._writer.start()

    def _delta(self, follow: Follow, seen: Event, now: float) -> None:
        self._start()
        raw = bytes(seen.delta)
        if seen.type == _TEXT:
            logprobs = bytes(seen.logprobs)
            self._heard.content(follow, raw, now, logprobs if logprobs[:1] == b"[" and len(logprobs) > 2 else b"")
        elif seen.type in _ARGUMENTS:
            self._arguments(follow, seen.output_index, raw[1:-1], now)
        elif seen.type in _REASONING:
            self._heard.reasoning(follow, raw)
        elif seen.type == _REFUSAL:
            self._heard.refusal(follow, raw, now)

    def _item(self, follow: Follow, index: int, item: Item, now: float, *, begins: bool) -> None:
        """Look at the beginning or the end of an item; a call may bring its arguments with either."""
        if item.type not in _CALLS:
            return
        if begins:
            self._call(follow, index, item, now)
        raw = bytes(item.arguments) or bytes(item.input)
        if raw not in (b"", b'""', b"null") and index not in self._given:
            self._arguments(follow, index, raw[1:-1], now)

    def _call(self, follow: Follow, index: int, item: Item, now: float) -> None:
        self._start()
        self._begun.add(index)
        follow.called(now)
        if item.type == "function_call":
            follow.argument(0, index, b"")
        if self._writer is not None:
            self._writer.tool(index, item.call_id or item.id, item.name)

    def _arguments(self, follow: Follow, index: int, piece: bytes, now: float) -> None:
        self._given.add(index)
        follow.called(now)
        follow.argument(0, index, piece)
        if self._writer is None:
            return
        if index in self._begun and is_text(piece):
            self._writer.arguments(index, piece)
        else:  # of a call whose beginning was lost
            follow.broken = True

    def _end(self, follow: Follow, seen: Event, now: float) -> None:
        """Take a terminal event."""
        follow.done = True
        reply = seen.response
        if reply is None or seen.type in ("error", "response.failed"):
            raw = reply.error if reply is not None else seen.error
            follow.error = bytes(raw) if said(raw) else _error(seen)
            return
        self._heard.rest(follow, now)
        self._reply(follow, reply)

    def _reply(self, follow: Follow, reply: Reply) -> None:
        """Take what a terminal event, or a whole answer, says of itself."""
        follow.finished = True
        follow.finish = reply.status
        if reply.usage is not None:
            follow.usage = usage_of(reply.usage)
        reason = reply.incomplete_details.reason if reply.incomplete_details is not None else None
        word = "tool_calls" if self._begun else "stop"
        follow.outcome = Outcome.TOOL_CALLS if self._begun else Outcome.COMPLETE
        if reply.status == "incomplete" or reason:
            filtered = reason == "content_filter"
            word = "content_filter" if filtered else "length"
            follow.outcome = Outcome.REFUSAL if filtered else Outcome.LENGTH
        if self._writer is not None:
            self._writer.end(word)

    def close(self, follow: Follow, now: float) -> bytes:  # noqa: ARG002 -- other dialects look at it
        """Write the end of a translated answer; without a terminal event there is none."""
        if self._writer is None or not follow.done or follow.broken or follow.error is not None:
            return b""
        self._start()
        self._writer.close(follow.used())
        return self._writer.take()

    def ends(self, data: bytes) -> bool:
        """Whether data is a whole event."""
        return readable(data)

    # The bytes.

    def _numbered(self, voice: Voice, event: bytes, payload: bytes, seen: Event) -> bytes:
        """Let an event pass, with our number and our id where the client has seen an event of ours."""
        if self._ours is None:
            self._ours = voice.created
        if seen.response is not None and seen.type == "response.created":
            if not self._ours:
                voice.created = True
                voice.shell = Shell(
                    id=seen.response.id, model=seen.response.model, created=int(seen.response.created_at)
                )
            elif seen.response.id:
                self._swap = (b'"%b"' % seen.response.id.encode(), b'"%b"' % voice.shell.id.encode())
        if self._ours and seen.type in _BEGINS:
            return b""
        number = seen.sequence_number
        if number is None:
            voice.number += 1
            return event
        if not self._ours and voice.number == 0:
            voice.number = number
        expected, voice.number = voice.number, voice.number + 1
        if number == expected and self._swap is None:
            return event
        payload = _NUMBER.sub(rb"\g<1>%d" % expected, payload, count=1)
        if self._swap is not None and seen.response is not None:
            payload = payload.replace(*self._swap)
        return b"event: %b\ndata: %b\n\n" % (seen.type.encode(), b" ".join(payload.split(b"\n")))

    def _keep(self, items: list[bytes], payload: bytes, seen: Event) -> None:
        """Keep what the whole answer is made of: the terminal event has it all, from most engines."""
        if seen.type == "response.output_item.done":
            items.append(bytes(msgspec.json.decode(payload, type=_Raw).item))
        elif seen.type in _TERMINAL:
            self._body = bytes(msgspec.json.decode(payload, type=_Raw).response)
            if seen.response is not None and not seen.response.output and items:
                whole: dict[str, Any] = msgspec.json.decode(self._body)
                self._body = msgspec.json.encode({**whole, "output": [msgspec.Raw(item) for item in items]})

    def whole(self, follow: Follow, body: bytes, now: float) -> bool:
        """Read an answer that came in one piece."""
        self._body = body
        try:
            reply = decode_reply(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._writer is None and readable(body)
        if reply.object != "response":
            return self._writer is None
        follow.done = True
        if reply.status == "failed":
            follow.error = bytes(reply.error)
            return True
        self._start()
        for index, item in enumerate(reply.output or ()):
            self._said(follow, index, item, now)
        self._reply(follow, reply)
        self.close(follow, now)
        return True

    def _said(self, follow: Follow, index: int, item: Item, now: float) -> None:
        """Read a whole item."""
        self._item(follow, index, item, now, begins=True)
        for part in (*(item.summary or ()), *(item.content or ())):
            if part.type == "refusal":
                self._heard.refusal(follow, bytes(part.refusal), now)
            elif item.type == "reasoning":
                self._heard.reasoning(follow, bytes(part.text))
            elif said(part.text):
                self._heard.content(follow, bytes(part.text), now)

    def body(self, follow: Follow) -> bytes:  # noqa: ARG002 -- other dialects look at it
        """Write the whole answer."""
        return self._body if self._writer is None else self._writer.body()


class _Raw(msgspec.Struct):
    item: msgspec.Raw = ABSENT
    response: msgspec.Raw = ABSENT


def _error(seen: Event) -> bytes:
    return msgspec.json.encode({"message": seen.message or "The engine failed.", "code": seen.code})
