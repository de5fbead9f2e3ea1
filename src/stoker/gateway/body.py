"""What is sent to an engine? The client's body with its splices, or its translation, behind a head of our own."""

from typing import Final

from stoker.gateway.dialect import BY_NAME, Dialect
from stoker.gateway.fleet import Upstream
from stoker.gateway.ticket import Ticket
from stoker.wire.follow import Voice
from stoker.wire.follower import Follower
from stoker.wire.pairs import Call, Pair, follower, prepare, voice
from stoker.wire.request import Asked

_PASSED: Final = (b"traceparent", b"tracestate")  # nothing else of the client's head concerns an engine


class Body:
    """One request body, ready to be written for whichever endpoint gets it, and what follows the answer."""

    __slots__ = ("_asked", "_body", "_call", "_cap", "_dialect", "_prepared", "aggregate", "voice")

    def __init__(
        self, dialect: Dialect, asked: Asked, body: bytes, *, cap: int, stream_upstream: bool, ticket: Ticket
    ) -> None:
        self._dialect = dialect
        self._asked = asked
        self._body = body
        self._cap = cap if dialect.capped else 0
        self._prepared: tuple[str, str, bytes] | None = None
        streams = ticket.stream
        self.aggregate = stream_upstream and dialect.streams and not streams
        self._call = Call(
            id=ticket.id,
            stream=streams,
            strip_usage=streams and not asked.wants_usage,
            aggregate=self.aggregate,
            created=int(ticket.at),
        )
        self.voice: Voice = voice(dialect.name, asked, call=self._call)

    def _pair(self, up: Upstream) -> Pair:
        return Pair(client=self._dialect.name, upstream=up.speaks[self._dialect.name], engine=up.spec.engine)

    def follower(self, up: Upstream) -> Follower:
        """Make what follows the answer of one try."""
        return follower(self._pair(up), self._asked, call=self._call, speaks=self.voice)

    def wire(self, up: Upstream, ticket: Ticket) -> bytes:
        """Write the whole request for one endpoint; raises Invalid where it cannot be said in the engine's dialect."""
        spec = up.spec
        pair = self._pair(up)
        prepared = self._prepared
        if prepared is None or prepared[:2] != (pair.upstream, spec.upstream_model):
            stream = self.aggregate or self._call.stream
            change = prepare(
                self._body, self._asked, pair=pair, cap=self._cap, model=spec.upstream_model, stream=stream
            )
            ticket.splices = change.splices
            prepared = self._prepared = (pair.upstream, spec.upstream_model, change.body)
        body = prepared[2]
        headers = ticket.exchange.headers
        passed = b"" if ticket.grant is None or spec.engine == "external" else ticket.grant.line
        if _PASSED[0] in headers:
            passed += b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in _PASSED if name in headers)
        return b"POST %b%b%b%b%bcontent-length: %d\r\n\r\n%b" % (
            up.prefix,
            BY_NAME[pair.upstream].upstream,
            up.fields,
            passed,
            ticket.id_line,
            len(body),
            body,
        )
