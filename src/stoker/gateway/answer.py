"""How is an answer, or a refusal, written to the client?

Until the engine has said its status nothing goes out. Then, or when the client has waited long enough, a stream is
committed: its status is 200, and whatever goes wrong later is a frame inside it.
"""

from typing import Final

from stoker.facts.routes import Routes
from stoker.gateway.dialect import Dialect
from stoker.gateway.surface.refusal import Refusal
from stoker.gateway.ticket import Ticket
from stoker.gateway.troubles import Trouble
from stoker.wire.errors import kind_of
from stoker.wire.follow import Voice

_JSON: Final = b"content-type: application/json\r\n"
_STREAM: Final = (
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
)
_NEVER_HEALS: Final = frozenset({400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 451})


def _error_fields(ticket: Ticket, status: int, retry_after: int) -> bytes:
    fields = _JSON + ticket.fields()
    if retry_after:
        fields += b"retry-after: %d\r\n" % retry_after
    elif status in _NEVER_HEALS:
        fields += b"x-should-retry: false\r\n"
    return fields


def refuse(ticket: Ticket, dialect: Dialect, trouble: Trouble) -> None:
    """Answer with an error and its own status."""
    fields = _error_fields(ticket, trouble.status, trouble.retry_after)
    if trouble.status == 401:
        fields += b"www-authenticate: Bearer\r\n"
    ticket.exchange.respond(
        trouble.status, fields, dialect.errors.body(trouble.status, trouble.message, code=trouble.code)
    )


class Answer:
    """The client's side of one forwarded request."""

    __slots__ = ("committed", "dialect", "streams", "ticket", "voice", "wrote_at")

    def __init__(self, ticket: Ticket, dialect: Dialect, voice: Voice) -> None:
        self.ticket = ticket
        self.dialect = dialect
        self.voice = voice
        self.streams = ticket.stream
        self.committed = False
        self.wrote_at = 0.0

    def commit(self, now: float) -> None:
        """Promise a stream before the engine has said anything, and show that we are alive."""
        prefix = self._start()
        self.ticket.exchange.send(self.voice.keep_alive(), prefix)
        self.wrote_at = now

    def _start(self) -> bytes:
        if self.committed:
            return b""
        self.committed = True
        return self.ticket.exchange.start(200, _STREAM + self.ticket.fields())

    def keep_alive(self, now: float) -> None:
        """Show that we are alive; only whole events were written, so a comment fits in here."""
        self.ticket.exchange.send(self.voice.keep_alive())
        self.wrote_at = now

    def tick(self, now: float, routes: Routes, *, failing: bool) -> None:
        """Commit a stream that has waited long enough, or show that we are alive; ``failing``: an error is coming."""
        if self.committed:
            if now - self.wrote_at >= routes.keep_alive:
                self.keep_alive(now)
        elif now - self.ticket.arrived >= routes.commit_after and not failing:
            self.commit(now)

    def send(self, data: bytes, now: float) -> None:
        """Forward events."""
        self.ticket.exchange.send(data, self._start())
        self.wrote_at = now

    def end(self, data: bytes) -> None:
        """Forward the last events and end the stream."""
        self.ticket.exchange.end(data, self._start())

    def whole(self, status: int, body: bytes, content_type: bytes = b"application/json") -> None:
        """Answer in one piece."""
        fields = b"content-type: %b\r\n%b" % (content_type, self.ticket.fields())
        self.ticket.exchange.respond(status, fields, body)

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an engine's refusal, or end the stream with it."""
        if self.committed:
            self.end(self.voice.failure(refusal.message, kind=kind_of(refusal.status), code=refusal.code))
            return
        fields = _error_fields(self.ticket, refusal.status, refusal.retry_after)
        self.ticket.exchange.respond(refusal.status, fields, refusal.body)

    def fail(self, trouble: Trouble, before: bytes = b"") -> None:
        """Tell the client what went wrong: by a status while that is possible, else by a frame and no terminator."""
        if not self.committed and not before:
            refuse(self.ticket, self.dialect, trouble)
            return
        kind = trouble.kind or kind_of(trouble.status)
        self.end(before + self.voice.failure(trouble.message, kind=kind, code=trouble.code))
