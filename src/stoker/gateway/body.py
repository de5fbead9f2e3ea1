"""What is sent to an engine? The client's body with its splices, behind a head of our own."""

from typing import Final

from stoker.gateway.dialect import Dialect
from stoker.gateway.fleet import Upstream
from stoker.gateway.ticket import Ticket
from stoker.wire.request import Asked, prepare

_PASSED: Final = (b"traceparent", b"tracestate")  # nothing else of the client's head concerns an engine


class Body:
    """One request body, ready to be written for whichever endpoint gets it."""

    __slots__ = ("_asked", "_body", "_cap", "_dialect", "_prepared", "aggregate", "strip_usage")

    def __init__(self, dialect: Dialect, asked: Asked, body: bytes, *, cap: int, stream_upstream: bool) -> None:
        self._dialect = dialect
        self._asked = asked
        self._body = body
        self._cap = cap if dialect.capped else 0
        self._prepared: tuple[str, bytes] | None = None
        streams = bool(asked.stream) and dialect.streams
        self.aggregate = stream_upstream and dialect.streams and not streams
        self.strip_usage = streams and not asked.wants_usage

    def wire(self, up: Upstream, ticket: Ticket) -> bytes:
        """Write the whole request for one endpoint."""
        spec = up.spec
        stream = self.aggregate or (bool(self._asked.stream) and self._dialect.streams)
        if self._prepared is None or self._prepared[0] != spec.upstream_model:
            change = prepare(self._body, self._asked, cap=self._cap, model=spec.upstream_model, stream=stream)
            ticket.splices = change.splices
            self._prepared = (spec.upstream_model, change.body)
        body = self._prepared[1]
        headers = ticket.exchange.headers
        passed = b""
        if _PASSED[0] in headers:
            passed = b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in _PASSED if name in headers)
        return b"POST %b%b%b%b%bcontent-length: %d\r\n\r\n%b" % (
            up.prefix,
            self._dialect.upstream,
            up.fields,
            passed,
            ticket.id_line,
            len(body),
            body,
        )
