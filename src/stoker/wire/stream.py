"""How is a streamed answer going, and how did it end? Follows the bytes; the bytes themselves pass by untouched.

Only one thing is ever taken out: the usage chunk that we asked for and the client did not.
"""

from typing import Any, Final

import msgspec

from stoker.facts.ending import Ending, Flag, Outcome
from stoker.facts.record import Gaps, Tokens
from stoker.wire.sse import MAX_EVENT_BYTES, Splitter, data_of
from stoker.wire.usage import Usage, joined

_ABSENT: Final = msgspec.Raw(b"")  # not None: msgspec would then take nothing but null


class _Function(msgspec.Struct):
    arguments: str | None = None


class _Tool(msgspec.Struct):
    index: int = 0
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: msgspec.Raw = _ABSENT
    reasoning_content: msgspec.Raw = _ABSENT
    reasoning: msgspec.Raw = _ABSENT
    refusal: str | None = None
    tool_calls: list[_Tool] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    text: msgspec.Raw = _ABSENT


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = _ABSENT


_decode = msgspec.json.Decoder(_Chunk).decode
_NOTHING: Final = (b"", b'""', b"null", b"[]")
_FINISH: Final = {
    "length": Outcome.LENGTH,
    "tool_calls": Outcome.TOOL_CALLS,
    "function_call": Outcome.TOOL_CALLS,
    "content_filter": Outcome.REFUSAL,
}
_MAX_ARGUMENT_BYTES: Final = 4 << 20


def _said(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in _NOTHING


_NO_GAPS: Final = Gaps()


class Follow:
    """Follows one answer. ``feed`` takes bytes cut anywhere and gives the bytes to forward."""

    __slots__ = (
        "_argument_bytes",
        "_arguments",
        "_finished",
        "_gap_sum",
        "_kinds",
        "_longest",
        "_reported",
        "_splitter",
        "_strip",
        "_token_reads",
        "_top",
        "broken",
        "chunks",
        "done",
        "error",
        "finish",
        "first_token_at",
        "first_visible_at",
        "last_token_at",
        "reports",
        "usage",
    )

    def __init__(self, *, strip_usage: bool) -> None:
        self._splitter = Splitter()
        self._strip = strip_usage
        self._arguments: dict[tuple[int, int], list[str]] = {}
        self._argument_bytes = 0
        self._finished = 0
        self._top = 0  # the highest choice seen: with n > 1 each must finish
        self._kinds = [0, 0, 0]  # events with reasoning, visible text, tool arguments
        self._token_reads = 0
        self._gap_sum = 0.0
        self._longest = 0.0
        self._reported = 0  # the weightiest kind of usage report so far: running, of a choice, of the answer
        self.broken = False  # an event that is no JSON, or without end
        self.chunks = 0
        self.done = False
        self.error: bytes | None = None
        self.finish = ""
        self.first_token_at = 0.0
        self.first_visible_at = 0.0
        self.last_token_at = 0.0
        self.reports = 0  # how many reports of the weightiest kind there are in ``usage``
        self.usage: Usage | None = None

    @property
    def finished(self) -> bool:
        """Whether every choice has a finish reason."""
        return self._finished > self._top

    def feed(self, data: bytes, now: float) -> bytes:
        """Follow bytes that came at ``now``; what comes after the terminator is dropped."""
        events = [] if self.done else self._splitter.feed(data)
        if not events:
            self.broken = self.broken or len(self._splitter.tail) > MAX_EVENT_BYTES
            return b""
        before = self._kinds[0] + self._kinds[1] + self._kinds[2]
        kept = [event for event in events if not self.done and self._event(event, now)]
        if self._kinds[0] + self._kinds[1] + self._kinds[2] > before:
            self._tick(now)
        return kept[0] if len(kept) == 1 else b"".join(kept)

    def flush(self, now: float) -> bytes:
        """Take a last event that lacks only its empty line, at the clean end of a body."""
        tail = self._splitter.tail
        data = data_of(tail.rstrip(b"\r\n") + b"\n\n") if tail.strip() else None
        if data is None or self.done or not (data == b"[DONE]" or _readable(data)):
            return b""
        self._splitter.tail = b""
        return self.feed(tail.rstrip(b"\r\n") + b"\n\n", now)

    def payloads(self, data: bytes, now: float) -> list[bytes]:
        """Follow bytes and give the JSON of each event, for whoever puts the whole answer together."""
        return self.payloads_of(self.feed(data, now))

    @staticmethod
    def payloads_of(events: bytes) -> list[bytes]:
        """Give the JSON of each of some whole events."""
        found = [data_of(event) for event in Splitter().feed(events)]
        return [payload for payload in found if payload is not None and payload != b"[DONE]"]

    def _event(self, event: bytes, now: float) -> bool:
        """Look at one event; False: it is ours and does not go on."""
        payload = data_of(event)
        if payload is None:
            return True
        if payload == b"[DONE]":
            self.done = True
            return True
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.broken = self.broken or not _readable(payload)
            return True
        self.chunks += 1
        if chunk.usage is not None:
            self._use(chunk.usage, chunk.choices)
            if self._strip and not chunk.choices:
                return False
        if _said(chunk.error):
            self.error = bytes(chunk.error)
        for choice in chunk.choices or ():
            self._choice(choice, now)
        return True

    def _use(self, report: Usage, choices: list[_Choice] | None) -> None:
        """Take a report on usage; see `stoker.wire.usage` for the three kinds."""
        kind = 1 if choices and any(choice.finish_reason is not None for choice in choices) else 0 if choices else 2
        if kind < self._reported:
            return
        if kind == self._reported and kind and self.usage is not None:
            self.usage = joined(self.usage, report, one_prompt=kind == 2)
            self.reports += 1
        else:
            self.usage, self.reports, self._reported = report, 1, kind

    def _choice(self, choice: _Choice, now: float) -> None:
        self._top = max(self._top, choice.index)
        if choice.finish_reason is not None:
            self._finished += 1
            self.finish = choice.finish_reason
        delta = choice.delta or choice.message
        if delta is not None:
            if _said(delta.reasoning_content) or _said(delta.reasoning):
                self._kinds[0] += 1
            if _said(delta.content) or delta.refusal:
                self._visible(1, now)
            if delta.tool_calls:
                self._visible(2, now)
                for tool in delta.tool_calls:
                    self._tool(choice.index, tool)
        elif _said(choice.text):
            self._visible(1, now)

    def _visible(self, kind: int, now: float) -> None:
        self._kinds[kind] += 1
        self.first_visible_at = self.first_visible_at or now

    def _tool(self, choice: int, tool: _Tool) -> None:
        piece = tool.function.arguments if tool.function is not None else None
        pieces = self._arguments.setdefault((choice, tool.index), [])
        if piece and self._argument_bytes < _MAX_ARGUMENT_BYTES:
            self._argument_bytes += len(piece)
            pieces.append(piece)

    def _tick(self, now: float) -> None:
        if self._token_reads:
            gap = now - self.last_token_at
            self._gap_sum += gap
            self._longest = max(self._longest, gap)
        else:
            self.first_token_at = now
        self._token_reads += 1
        self.last_token_at = now

    def whole(self, body: bytes, now: float) -> bool:
        """Read an answer that came in one piece; False when it is no JSON."""
        try:
            chunk = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _readable(body)
        self.usage = chunk.usage
        for choice in chunk.choices or ():
            self._choice(choice, now)
        self._tick(now)
        self.done = True
        return True

    def ending(self, *, cut: str) -> Ending:
        """Say how the answer ended; ``cut``: how the connection ended before its body did, or nothing.

        An answer is whole when its terminator came, or when every choice has finished and the body has ended by its
        own framing: some engines send no terminator, none sends a finish reason and then more text.
        """
        if self.error is not None:
            return Ending(outcome=Outcome.ERROR, detail="in_band", flags=self._flags())
        if self.broken or not (self.done or (self.finished and not cut)):
            return Ending(outcome=Outcome.TRUNCATED, detail=cut or "clean", flags=self._flags())
        return Ending(outcome=_FINISH.get(self.finish, Outcome.COMPLETE), flags=self._flags())

    def _flags(self) -> tuple[Flag, ...]:
        if self._kinds[1] and not self._arguments:
            return ()
        flags = []
        if not any(self._kinds):
            flags.append(Flag.EMPTY)
        if any(not _readable("".join(pieces).encode() or b"{}") for pieces in self._arguments.values()):
            flags.append(Flag.TOOL_PARSE_FAILED)
        return tuple(flags)

    def tokens(self) -> Tokens:
        """Count tokens: as reported, or by events where the engine reported nothing."""
        reasoning, visible, tool = self._kinds
        usage = self.usage
        if usage is None or usage.completion_tokens is None:
            prompt = usage.prompt_tokens or 0 if usage is not None else 0
            output = reasoning + visible + tool
            return Tokens(
                prompt=prompt, reasoning=reasoning, visible=visible, tool=tool, output=output, estimated=output > 0
            )
        output = usage.completion_tokens
        details = usage.completion_tokens_details
        if details is not None and details.reasoning_tokens is not None:
            reasoning = details.reasoning_tokens
        cached = usage.prompt_tokens_details.cached_tokens or 0 if usage.prompt_tokens_details is not None else 0
        reasoning = min(reasoning, output)
        tool = min(tool, output - reasoning)
        return Tokens(
            prompt=usage.prompt_tokens or 0,
            cached=cached,
            reasoning=reasoning,
            visible=output - reasoning - tool,
            tool=tool,
            output=output,
        )

    def gaps(self) -> Gaps:
        """Summarise the waits between tokens."""
        count = self._token_reads - 1
        if count < 1:
            return _NO_GAPS
        return Gaps(count=count, mean=self._gap_sum / count, longest=self._longest)


def _readable(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=Any)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
