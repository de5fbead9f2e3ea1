"""What does an engine say in chat (or completions) chunks?

Where the client speaks chat too the bytes pass by untouched, but for the usage chunk that we asked for and the client
did not, and for what `stoker.wire.scan.mend` repairs. For other clients a writer gets what is said.
"""

from typing import Final

import msgspec

from stoker.facts.ending import Flag, Outcome
from stoker.wire.aggregate import Aggregate
from stoker.wire.follow import Follow, readable
from stoker.wire.scan.calls import Calls, Seen, Tool
from stoker.wire.scan.heard import Heard, is_text, said
from stoker.wire.scan.how import How
from stoker.wire.scan.mend import Mends, whole
from stoker.wire.sse import data_of
from stoker.wire.usage import Usage, joined
from stoker.wire.write.writer import Writer

_ABSENT: Final = msgspec.Raw(b"")  # not None: msgspec would then take nothing but null


class Delta(msgspec.Struct):
    """What a chunk adds to a choice."""

    content: msgspec.Raw = _ABSENT
    reasoning_content: msgspec.Raw = _ABSENT
    reasoning: msgspec.Raw = _ABSENT
    refusal: msgspec.Raw = _ABSENT
    tool_calls: list[Tool] | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk, or of a whole answer."""

    index: int = 0
    finish_reason: str | None = None
    delta: Delta | None = None
    message: Delta | None = None
    text: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT
    stop_reason: str | int | None = None  # vLLM: the stop sequence, or a token's number
    matched_stop: str | int | None = None  # SGLang's name for it


class Chunk(msgspec.Struct):
    """One chunk, or a whole answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = _ABSENT


class Logprobs(msgspec.Struct):
    """The log-probabilities of a choice."""

    content: msgspec.Raw = _ABSENT


_decode = msgspec.json.Decoder(Chunk).decode
_logprobs = msgspec.json.Decoder(Logprobs | None).decode
_FINISH: Final = {
    "length": Outcome.LENGTH,
    "repetition": Outcome.LENGTH,  # vLLM stopped an answer that went round in circles
    "tool_calls": Outcome.TOOL_CALLS,
    "function_call": Outcome.TOOL_CALLS,
    "content_filter": Outcome.REFUSAL,
}
_PLAIN: Final = {"stop": Outcome.COMPLETE, "length": Outcome.LENGTH}
_GAVE_UP: Final = frozenset({"abort", "error", "cancelled"})  # vLLM and SGLang say so by a finish reason
_WORDS: Final = {Outcome.LENGTH: "length", Outcome.TOOL_CALLS: "tool_calls", Outcome.REFUSAL: "content_filter"}
_LOST: Final = b'{"message":"The engine gave up.","type":"upstream_error","code":"upstream_aborted"}'


class Chat:
    """The chat dialect of an engine."""

    __slots__ = (
        "_aggregate",
        "_body",
        "_calls",
        "_ended",
        "_heard",
        "_mends",
        "_passes",
        "_quick",
        "_reported",
        "_reports",
        "_seed",
        "_started",
        "_strip",
        "_top",
        "_writer",
    )

    def __init__(self, how: How) -> None:
        self._strip = how.strip_usage
        self._writer = how.writer
        self._aggregate = Aggregate() if how.aggregate and how.writer is None else None
        self._passes = self._writer is None and self._aggregate is None
        self._quick = False  # the first choice has begun, and its events pass
        self._heard = Heard(writer=how.writer, tools=how.tools, engine=how.engine)
        self._seed = how.seed
        self._body = b""
        self._started = False
        self._calls: dict[int, Calls] = {}
        self._mends: Mends | None = None  # of the event at hand
        self._ended = 0
        self._top = -1  # the highest choice seen: with n > 1 each must finish
        self._reported = 0  # the weightiest kind of usage report so far: running, of a choice, of the answer
        self._reports = 0  # how many reports of the weightiest kind there are in the usage

    # A stream.

    def event(self, follow: Follow, event: bytes, now: float) -> bytes:
        """Look at one event; what is ours does not go on."""
        payload = data_of(event)
        if payload is None:
            return event if self._passes else b""
        if payload == b"[DONE]":
            return self._terminator(follow, event, now)
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            nothing = payload == b"null"  # llama.cpp begins so where there are several prompts
            follow.broken = follow.broken or not (nothing or (self._passes and readable(payload)))
            return event if self._passes and not nothing else b""
        follow.chunks += 1
        some = chunk.choices
        if self._quick and some is not None and len(some) == 1 and self._heard.plain and _speaks(chunk, some[0]):
            follow.spoke(now)  # nearly all chunks are words that simply pass
            return event
        self._chunk(follow, chunk, now)
        if not self._passes or self._mends is not None:
            return self._changed(follow, payload)
        return b"" if self._strip and chunk.usage is not None and not chunk.choices else event

    def _chunk(self, follow: Follow, chunk: Chunk, now: float) -> None:
        if said(chunk.error):
            follow.error = follow.error or bytes(chunk.error)
        elif self._writer is not None:
            self._start(self._writer)
        for choice in chunk.choices or ():
            self._choice(follow, choice, now)
        if chunk.usage is not None:
            self._use(follow, chunk.usage, chunk.choices)

    def _start(self, writer: Writer) -> None:
        if not self._started:
            self._started = True
            writer.start()

    def _changed(self, follow: Follow, payload: bytes) -> bytes:
        """Write what an event becomes where it does not simply pass."""
        writer, mends = self._writer, self._mends
        if writer is not None:
            return writer.take() + follow.in_band()
        self._mends = None
        if mends is None:
            return self._keep(follow, payload)
        if mends.gave_up:
            return follow.in_band() if self._passes else b""
        if not is_text(payload):
            follow.broken = True
            return b""
        payloads = mends.write(payload)
        if self._aggregate is not None:
            return b"".join([self._keep(follow, piece) for piece in payloads])
        return b"".join([b"data: %b\n\n" % b" ".join(piece.split(b"\n")) for piece in payloads])

    def _keep(self, follow: Follow, payload: bytes) -> bytes:
        if not follow.broken and follow.error is None and self._aggregate is not None:
            try:
                self._aggregate.add(payload)
            except (msgspec.DecodeError, UnicodeDecodeError):  # in a member that we do not read
                follow.broken = True
        return b""

    def _terminator(self, follow: Follow, event: bytes, now: float) -> bytes:
        """Take the terminator: after an answer that never finished it is a lie, and does not go on."""
        follow.done = True
        if not follow.finished and follow.error is None:
            follow.broken = True
            return b""
        return event if self._passes else self.close(follow, now)

    def close(self, follow: Follow, now: float) -> bytes:  # noqa: ARG002 -- other dialects look at it
        """Write the end of a translated answer."""
        writer = self._writer
        if writer is None or follow.error is not None or follow.broken:
            return b""
        self._start(writer)
        writer.close(follow.used())
        return writer.take()

    def ends(self, data: bytes) -> bool:
        """Whether data is a whole event."""
        return data == b"[DONE]" or readable(data)

    # What it says.

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
            self._quick = self._passes
            follow.finished = False
        delta = choice.delta or choice.message
        if delta is not None:
            self._words(follow, choice, delta, now)
            if delta.tool_calls:
                self._tools(follow, choice, delta.tool_calls, now)
        elif said(choice.text):
            follow.spoke(now)
        if choice.finish_reason is not None:
            self._finished(follow, choice, choice.finish_reason, now)

    def _words(self, follow: Follow, choice: Choice, delta: Delta, now: float) -> None:
        heard = self._heard if not choice.index else _UNHEARD  # only the first choice is translated
        thought = delta.reasoning_content if said(delta.reasoning_content) else delta.reasoning
        if said(thought):
            heard.reasoning(follow, bytes(thought))
        if said(delta.content):
            if heard.plain:
                follow.spoke(now)
            else:
                heard.content(follow, bytes(delta.content), now, _tokens(choice.logprobs))
        if said(delta.refusal):
            heard.refusal(follow, bytes(delta.refusal), now)

    def _tools(self, follow: Follow, choice: Choice, tools: list[Tool], now: float) -> None:
        follow.called(now)
        calls = self._calls.get(choice.index)
        if calls is None:
            calls = self._calls[choice.index] = Calls(self._seed)
        seen = [calls.see(tool) for tool in tools]
        if choice.message is None and choice.finish_reason in ("stop", "tool_calls"):
            seen = [calls.last(what) for what in seen]
        for what in seen:
            follow.argument(choice.index, what.index, what.piece)
        if self._writer is not None:
            if not choice.index:
                self._call(follow, self._writer, seen)
        elif choice.message is None and any(what.wrong for what in seen):
            self._mend().pieces[choice.index] = seen
            for what in seen:
                if what.wrong:
                    follow.repaired(what.wrong)

    @staticmethod
    def _call(follow: Follow, writer: Writer, seen: list[Seen]) -> None:
        for what in seen:
            if what.begins:
                follow.broken = follow.broken or not what.name  # nobody could call it
                writer.tool(what.index, what.id, what.name)
            follow.broken = follow.broken or not is_text(what.piece)
            if what.piece:
                writer.arguments(what.index, what.piece)

    def _finished(self, follow: Follow, choice: Choice, reason: str, now: float) -> None:
        self._ended += 1
        follow.finished = self._ended > self._top
        if not choice.index:
            self._heard.rest(follow, now)
        if reason in _GAVE_UP:
            follow.error = follow.error or _LOST
            self._mend().gave_up = True
        calls = self._calls.get(choice.index)
        if calls is not None and reason in ("stop", "tool_calls"):
            self._calls_end(follow, choice, calls, reason=reason)
            reason = "tool_calls"
        if reason == "repetition":
            follow.flag(Flag.REPETITION)
        follow.finish = reason
        follow.outcome = _FINISH.get(reason, Outcome.COMPLETE)
        if self._writer is not None and not choice.index:
            at = choice.stop_reason if choice.stop_reason is not None else choice.matched_stop
            self._writer.end(_WORDS.get(follow.outcome, "stop"), at if isinstance(at, str) else "")

    def _calls_end(self, follow: Follow, choice: Choice, calls: Calls, *, reason: str) -> None:
        """See that an answer with calls says so, and that each call has arguments."""
        empty = sorted(calls.empty)
        calls.empty.clear()
        if self._writer is not None:
            for index in empty if not choice.index else ():
                self._writer.arguments(index, b"{}")
            return
        if reason == "stop":
            self._mend().finish = True
            follow.repaired("finish_reason")
        if empty:
            self._mend().empty[choice.index] = empty
            follow.repaired("tool_arguments")

    def _mend(self) -> Mends:
        if self._mends is None:
            self._mends = Mends()
        return self._mends

    # An answer in one piece.

    def whole(self, follow: Follow, body: bytes, now: float) -> bool:
        """Read an answer that came in one piece; False when it is no JSON."""
        self._body = body
        try:
            chunk = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._writer is None and readable(body)
        if self._passes and self._plainly(follow, chunk, now):
            return True
        self._chunk(follow, chunk, now)
        mends = self._mends
        if mends is not None and not mends.gave_up:
            self._body = whole(body, empty=bool(mends.empty))
        if self._writer is not None:
            self.close(follow, now)
        return self._writer is None or bool(chunk.choices) or follow.error is not None

    def _plainly(self, follow: Follow, chunk: Chunk, now: float) -> bool:
        """Take the usual answer, the words of one choice and nothing else, in one step."""
        choices, choice = chunk.choices, chunk.choices[0] if chunk.choices else None
        if choices is None or choice is None or len(choices) != 1 or choice.message is None or said(chunk.error):
            return False
        message, reason = choice.message, choice.finish_reason
        if choice.index or reason not in _PLAIN or message.tool_calls or not said(message.content):
            return False
        if said(message.reasoning_content) or said(message.reasoning) or said(message.refusal):
            return False
        if not self._heard.simple(bytes(message.content)):
            return False
        follow.spoke(now)
        follow.usage = chunk.usage
        follow.finished = True
        follow.finish = reason
        follow.outcome = _PLAIN[reason]
        return True

    def body(self, follow: Follow) -> bytes:
        """Write the whole answer."""
        if self._writer is not None:
            return self._writer.body()
        if self._aggregate is None or self._body:
            return self._body
        if self._reports > 1:
            tokens = follow.tokens()
            self._aggregate.count(prompt=tokens.prompt, output=tokens.output)
        return self._aggregate.body()


def _speaks(chunk: Chunk, choice: Choice) -> bool:
    """Whether a chunk holds words of an answer and nothing else."""
    delta = choice.delta
    if delta is None or choice.index or choice.finish_reason is not None or chunk.usage is not None:
        return False
    if delta.tool_calls:
        return False
    if not said(delta.content) or said(delta.reasoning_content) or said(delta.reasoning) or said(delta.refusal):
        return False
    return not said(chunk.error)


_UNHEARD: Final = Heard(writer=None, tools=False, engine="llama.cpp")


def _tokens(raw: msgspec.Raw) -> bytes:
    """Give the list of a choice's log-probabilities, for a writer."""
    if not said(raw):
        return b""
    found = _logprobs(raw)
    tokens = bytes(found.content) if found is not None else b""
    return tokens if tokens[:1] == b"[" and len(tokens) > 2 else b""
