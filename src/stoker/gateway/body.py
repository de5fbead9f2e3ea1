"""What is sent to an engine? The client's body with its splices, or its translation, behind a head of our own."""

from collections.abc import Callable
from typing import Final

from stoker.base.errors import Invalid
from stoker.drivers.aside.errands import LARGE_BYTES, Aside, Errand, Told
from stoker.drivers.aside.frames import Job
from stoker.gateway.dialect import Dialect
from stoker.gateway.fleet import Upstream
from stoker.gateway.ticket import Ticket
from stoker.wire import tokenise
from stoker.wire.follow import Voice
from stoker.wire.follower import Follower
from stoker.wire.pairs import Call, Pair, follower, prepare, voice
from stoker.wire.request import Asked
from stoker.wire.tokenise import Question

_COPIED_BYTES: Final = 64 << 10  # a smaller body is cheaper to copy behind its head than to write by itself
_MEDIA_BYTES: Final = 2 << 20  # where an image is looked for
_PASSED: Final = (b"traceparent", b"tracestate")  # nothing else of the client's head concerns an engine


class Body:
    """One request body, ready to be written for whichever endpoint gets it, and what follows the answer."""

    __slots__ = (
        "_asked",
        "_before",
        "_call",
        "_cap",
        "_dialect",
        "_prepared",
        "aggregate",
        "asked_output",
        "output",
        "raw",
        "room",
        "voice",
    )

    def __init__(
        self, dialect: Dialect, asked: Asked, body: bytes, *, cap: int, stream_upstream: bool, ticket: Ticket
    ) -> None:
        self._dialect = dialect
        self._asked = asked
        self.raw = body
        self._cap = cap if dialect.capped else 0
        self._prepared: tuple[tuple[str, str, int], bytes] | None = None
        self.asked_output = (asked.cap or 0) if self._cap else 0  # tokens; 0: the client did not say
        self.output = min(self.asked_output or self._cap, self._cap)  # tokens that may be generated
        self.room = 0  # tokens that fit behind the prompt, where that is fewer; 0: all do
        streams = ticket.stream
        self.aggregate = stream_upstream and dialect.streams and not streams
        self._call = Call(
            id=ticket.id,
            stream=streams,
            strip_usage=streams and not asked.wants_usage,
            aggregate=self.aggregate,
            created=int(ticket.at),
        )
        self._before = ticket.splices  # what was changed already
        self.voice: Voice = voice(dialect.name, asked, call=self._call)

    def follower(self, up: Upstream) -> Follower:
        """Make what follows the answer of one try."""
        return follower(up.pairs[self._dialect.name], self._asked, call=self._call, speaks=self.voice)

    def eavesdropper(self, up: Upstream) -> Follower:
        """Make what follows an answer of which the client hears nothing: it must not speak with the client's voice."""
        apart = voice(self._dialect.name, self._asked, call=self._call)
        return follower(up.pairs[self._dialect.name], self._asked, call=self._call, speaks=apart)

    @property
    def opaque(self) -> bool:
        """Whether it holds what is no text: the bytes of an image say nothing about its tokens."""
        text = self._asked.conversation(_MEDIA_BYTES)
        return b"base64" in text or b"image_url" in text or b"input_audio" in text

    def question(self, up: Upstream) -> Question | None:
        """Ask the endpoint for the size of the prompt; None where it, or this dialect, knows no such question."""
        engine, native = up.spec.engine, self._dialect.name
        if not tokenise.asks(engine) or (native not in ("chat", "completions") and len(self.raw) > LARGE_BYTES):
            return None
        pair = Pair(client=native, upstream=native if native == "completions" else "chat", engine=engine)
        try:
            change = prepare(self.raw, self._asked, pair=pair, cap=0, model=up.spec.upstream_model, stream=False)
        except Invalid:  # the same will be said, with its reason, when the request is made
            return None
        return tokenise.question(engine, change.body)

    def _key(self, up: Upstream, ticket: Ticket) -> tuple[str, str, int]:
        """Say what the body depends on: the engine's dialect, its name for the model, the output cap."""
        cap = min(self._cap, self.room) if self.room else self._cap
        return up.speaks[self._dialect.name], ticket.adapter or up.spec.upstream_model, cap

    def heavy(self, up: Upstream, ticket: Ticket) -> bool:
        """Whether to say it in the engine's dialect would hold everybody up."""
        native = up.speaks[self._dialect.name] == self._dialect.name
        done = self._prepared is not None and self._prepared[0] == self._key(up, ticket)
        return len(self.raw) > LARGE_BYTES and not native and not done

    def ready(self, up: Upstream, ticket: Ticket) -> bool:
        """Whether nothing is left to do; else do it now, where it is no translation: that may be refused."""
        if self._prepared is not None or up.speaks[self._dialect.name] != self._dialect.name:
            return True
        self._made(up, ticket)
        return False

    def translate(self, aside: Aside, up: Upstream, ticket: Ticket, done: Callable[[Told], None]) -> Errand:
        """Have it said in the engine's dialect aside; `wire` then has it ready."""
        pair, key = up.pairs[self._dialect.name], self._key(up, ticket)
        job = Job(
            client=pair.client,
            upstream=pair.upstream,
            engine=pair.engine,
            cap=key[2],
            model=key[1] or self._asked.model,
            stream=self.aggregate or self._call.stream,
        )

        def take(told: Told) -> None:
            if not (told.invalid or told.failed):
                ticket.splices = (*self._before, *told.splices)
                self._prepared = (key, told.body)
            done(told)

        return aside.translate(job, self.raw, take)

    def _made(self, up: Upstream, ticket: Ticket) -> bytes:
        """Make the body for one endpoint, unless it is there from before."""
        key = _, model, cap = self._key(up, ticket)
        prepared = self._prepared
        if prepared is None or prepared[0] != key:
            stream, pair = self.aggregate or self._call.stream, up.pairs[self._dialect.name]
            change = prepare(self.raw, self._asked, pair=pair, cap=cap, model=model, stream=stream)
            if change.splices or ticket.splices is not self._before:
                ticket.splices = (*self._before, *change.splices)
            prepared = self._prepared = (key, change.body)
        return prepared[1]

    def wire(self, up: Upstream, ticket: Ticket) -> tuple[bytes, ...]:
        """Write the whole request for one endpoint; raises Invalid where it cannot be said in the engine's dialect."""
        body = self._made(up, ticket)
        headers = ticket.exchange.headers
        passed = b"" if ticket.grant is None or up.spec.engine == "external" else ticket.grant.line
        if _PASSED[0] in headers:
            passed += b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in _PASSED if name in headers)
        start, size = up.starts[up.speaks[self._dialect.name]], len(body)
        if size > _COPIED_BYTES:
            return b"%b%b%bcontent-length: %d\r\n\r\n" % (start, passed, ticket.id_line, size), body
        return (b"%b%b%bcontent-length: %d\r\n\r\n%b" % (start, passed, ticket.id_line, size, body),)
