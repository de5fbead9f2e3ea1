"""How is an answer going, and how did it end? One accounting for every dialect.

A scanner knows the engine's dialect and reports here what it sees; a voice knows the client's.
"""

import json
from typing import Final, Protocol

import msgspec

from stoker.facts.ending import Ending, Flag, Outcome
from stoker.facts.record import Gaps, Tokens
from stoker.wire.sse import MAX_EVENT_BYTES, Splitter, data_of
from stoker.wire.usage import Usage

_MAX_ARGUMENT_BYTES: Final = 4 << 20
_NO_GAPS: Final = Gaps()


class _Error(msgspec.Struct):
    """An error inside an answer, whatever the dialect."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None


class Scanner(Protocol):
    """Reads one upstream dialect."""

    def event(self, follow: "Follow", event: bytes, now: float) -> bytes:
        """Look at one event and give what goes on."""

    def whole(self, follow: "Follow", body: bytes, now: float) -> bool:
        """Read an answer that came in one piece; False when it is none."""

    def close(self, follow: "Follow", now: float) -> bytes:
        """Give what is still owed when the body has ended and everything has finished."""

    def ends(self, data: bytes) -> bool:
        """Whether the data of an event that lacks its empty line is a whole event."""

    def body(self, follow: "Follow") -> bytes:
        """Write the whole answer."""


class Voice(Protocol):
    """What the client's dialect says for ourselves."""

    def keep_alive(self) -> bytes:
        """Write what shows that the answer is still coming."""

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write an error inside a stream."""


class Follow(msgspec.Struct, eq=False):
    """Follows one answer; see `stoker.wire.follower`. A struct, because its many defaults are then set in C."""

    _scanner: Scanner
    _voice: Voice
    _splitter: Splitter | None = None  # of a stream
    _arguments: dict[tuple[int, int], list[bytes]] = {}
    _argument_bytes: int = 0
    _token_reads: int = 0
    _told: bool = False
    _gap_sum: float = 0.0
    _longest: float = 0.0
    reasoning: int = 0  # events of each kind
    visible: int = 0
    tools: int = 0
    said: int = 0  # events of all kinds
    broken: bool = False
    chunks: int = 0
    done: bool = False
    error: bytes | None = None
    finish: str = ""
    finished: bool = False  # every part that began has ended
    first_token_at: float = 0.0
    first_visible_at: float = 0.0
    flags: tuple[Flag, ...] = ()
    last_token_at: float = 0.0
    outcome: Outcome = Outcome.COMPLETE
    repairs: tuple[str, ...] = ()
    usage: Usage | None = None

    # Bytes.

    def feed(self, data: bytes, now: float) -> bytes:
        """Follow bytes that came at ``now``; what comes after the terminator is dropped."""
        splitter = self._splitter
        if splitter is None:
            splitter = self._splitter = Splitter()
        events = [] if self.done else splitter.feed(data)
        if not events:
            self.broken = self.broken or len(splitter.tail) > MAX_EVENT_BYTES
            return b""
        before = self.said
        scan = self._scanner.event
        if len(events) == 1:
            out = scan(self, events[0], now)
        else:
            out = b"".join([scan(self, event, now) for event in events if not self.done])
        if self.said != before:
            self._tick(now)
        return out

    def flush(self, now: float) -> bytes:
        """Take a last event that lacks only its empty line, and what is owed, at the clean end of a body."""
        out = b""
        splitter = self._splitter
        tail = splitter.tail if splitter is not None else b""
        data = data_of(tail.rstrip(b"\r\n") + b"\n\n") if tail.strip() else None
        if splitter is not None and data is not None and not self.done and self._scanner.ends(data):
            splitter.tail = b""
            out = self.feed(tail.rstrip(b"\r\n") + b"\n\n", now)
        if self.finished and not self.done and not self.broken and self.error is None:
            out += self._scanner.close(self, now)
        return out

    def whole(self, body: bytes, now: float) -> bool:
        """Read an answer that came in one piece; False when it is none."""
        if not self._scanner.whole(self, body, now):
            return False
        self._tick(now)
        self.done = True
        return True

    def body(self) -> bytes:
        """Write the whole answer."""
        return self._scanner.body(self)

    def keep_alive(self) -> bytes:
        """Write what shows the client that the answer is still coming."""
        return self._voice.keep_alive()

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write the error frame that ends the client's stream."""
        return self._voice.failure(message, kind=kind, code=code)

    # What scanners report.

    def thought(self) -> None:
        """Count an event with reasoning."""
        self.reasoning += 1
        self.said += 1

    def spoke(self, now: float) -> None:
        """Count an event with visible text."""
        self.visible += 1
        self.said += 1
        if not self.first_visible_at:
            self.first_visible_at = now

    def called(self, now: float) -> None:
        """Count an event with a tool call, or a piece of its arguments."""
        self.tools += 1
        self.said += 1
        if not self.first_visible_at:
            self.first_visible_at = now

    def argument(self, choice: int, index: int, piece: bytes) -> None:
        """Keep a piece of a call's arguments (the inside of a JSON string), to see at the end whether they parse."""
        pieces = self._arguments.setdefault((choice, index), [])
        if piece and self._argument_bytes < _MAX_ARGUMENT_BYTES:
            self._argument_bytes += len(piece)
            pieces.append(piece)

    def repaired(self, what: str) -> None:
        """Note a repair, once."""
        if what not in self.repairs:
            self.repairs = (*self.repairs, what)

    def flag(self, flag: Flag) -> None:
        """Note what is wrong with the answer, once."""
        if flag not in self.flags:
            self.flags = (*self.flags, flag)

    def used(self) -> Usage:
        """Give what was used, for who must write it: as reported, or counted by events."""
        usage = self.usage
        return (
            usage if usage is not None and usage.completion_tokens is not None else Usage(completion_tokens=self.said)
        )

    def in_band(self) -> bytes:
        """Write the engine's own error in the client's dialect, once."""
        error, told = self.error, self._told
        self._told = error is not None
        if error is None or told:
            return b""
        try:
            seen = msgspec.json.decode(error, type=_Error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            seen = _Error(message=error.decode("utf-8", "replace").strip('"'))
        message = seen.message or "The engine reported an error."
        return self.failure(message, kind=seen.type or "upstream_error", code=seen.code or "upstream_error")

    def _tick(self, now: float) -> None:
        if self._token_reads:
            gap = now - self.last_token_at
            self._gap_sum += gap
            self._longest = max(self._longest, gap)
        else:
            self.first_token_at = now
        self._token_reads += 1
        self.last_token_at = now

    # The end.

    def ending(self, *, cut: str) -> Ending:
        """Say how the answer ended; ``cut``: how the connection ended before its body did, or nothing.

        An answer is whole when its terminator came, or when every choice has finished and the body has ended by its
        own framing: some engines send no terminator, none sends a finish reason and then more text.
        """
        if self.error is not None:
            return Ending(outcome=Outcome.ERROR, detail="in_band", flags=self._flags())
        if self.broken or not (self.done or (self.finished and not cut)):
            return Ending(outcome=Outcome.TRUNCATED, detail=cut or "clean", flags=self._flags())
        flags = () if self.said and not self.flags and not self._arguments else self._flags()
        return Ending(outcome=self.outcome, flags=flags)

    def _flags(self) -> tuple[Flag, ...]:
        if not self.said:
            return (Flag.EMPTY, *self.flags)
        if not self._arguments or Flag.TOOL_PARSE_FAILED in self.flags:
            return self.flags
        if all(_is_json(b"".join(pieces)) for pieces in self._arguments.values()):
            return self.flags
        return (Flag.TOOL_PARSE_FAILED, *self.flags)

    def tokens(self) -> Tokens:
        """Count tokens: as reported, or by events where the engine reported nothing."""
        reasoning, tool = self.reasoning, self.tools
        usage = self.usage
        if usage is None or usage.completion_tokens is None:
            prompt = usage.prompt_tokens or 0 if usage is not None else 0
            return Tokens(
                prompt=prompt,
                reasoning=reasoning,
                visible=self.visible,
                tool=tool,
                output=self.said,
                estimated=self.said > 0,
            )
        output = usage.completion_tokens
        details = usage.completion_tokens_details
        if details is not None and details.reasoning_tokens:  # 0 from an engine without a parser says nothing
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


def readable(data: bytes) -> bool:
    """Whether a client could read this as JSON; half of a surrogate pair, which msgspec refuses, is read by most."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _is_json(piece: bytes) -> bool:
    """Whether arguments, as the inside of a JSON string, are JSON themselves; none at all are the empty object."""
    try:
        text = msgspec.json.decode(b'"%b"' % piece, type=str)
        msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True
