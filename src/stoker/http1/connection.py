"""How is one client connection read? The parser's calls become exchanges, in their order."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

import httptools
import msgspec

from stoker.base import clock
from stoker.http1.exchange import Exchange
from stoker.http1.message import framing, head

_MAX_PIPELINED: Final = 8
LARGE_BYTES: Final = 1 << 20  # a larger body is put together while it comes
_DISCARD_BYTES: Final = 1 << 20  # an unwanted body is read up to here: its sender then sees the answer and no reset


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may cost us. Times are in seconds."""

    head_bytes: int = 64 << 10
    headers: int = 128
    target_bytes: int = 8 << 10
    head: float = 10.0  # from the first byte of a head to its last
    body_idle: float = 30.0  # between two pieces of a body
    body: float = 300.0  # a whole body
    idle: float = 75.0  # a kept connection without a request
    linger: float = 2.0  # after an early answer, for the rest of a body that nobody reads
    sweep: float = 0.25


class App(Protocol):
    """What stands behind the server."""

    def head(self, exchange: Exchange) -> bool:
        """Look at a complete head; False: the body is not wanted."""

    def request(self, exchange: Exchange) -> None:
        """Answer, now or later. ``exchange.fault`` is the status of a body that will not come, else 0."""

    def broken(self, status: int, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        """Give header lines and body of an error that concerns no request: a head that could not be read, a bug."""


class House(Protocol):
    """The server as a connection sees it."""

    app: App
    limits: Limits
    body_limit: int
    draining: bool
    connections: "set[Connection]"
    loop: asyncio.AbstractEventLoop

    def guard(self, exchange: Exchange, call: Callable[[Exchange], bool | None]) -> bool:
        """Run the application."""


class Connection(asyncio.Protocol):
    """One client connection."""

    __slots__ = (
        "arrived_bytes",
        "body_limit",
        "current",
        "deadline",
        "draining",
        "gulped_bytes",
        "head_bytes",
        "known",
        "lingering",
        "offered",
        "parser",
        "queue",
        "request",
        "server",
        "spoilt",
        "transport",
        "write",
    )

    def __init__(self, server: House) -> None:
        self.server = server
        self.queue: deque[Exchange] = deque()
        self.current: Exchange | None = None  # the one that is being answered
        self.request: Exchange | None = None  # the one that is being read
        self.body_limit = server.body_limit
        self.draining = server.draining  # whether it closes with its answer
        self.known: object = None  # the application's own
        self.head_bytes = 0  # of an incomplete head, before this read
        self.arrived_bytes = 0  # in this read
        self.gulped_bytes = 0  # of a large body, since others had their turn
        self.lingering = False
        self.offered = False  # another protocol, for which the parser would stop: we read on as if nothing were said
        self.spoilt = False  # unreadable bytes came behind a good request: answer that one, then close

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it
        self.write = self.transport.write
        self.parser = httptools.HttpRequestParser(self)
        self.server.connections.add(self)
        self.deadline = clock.mono() + self.server.limits.head

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio names it
        """Tell whoever answers that nobody listens any more."""
        self.server.connections.discard(self)
        for exchange in (self.current, self.request, *self.queue):
            if exchange is not None and exchange.connection is not None:
                exchange.connection = exchange.note = None
                listener, exchange.listener = exchange.listener, None
                if listener is not None:
                    listener.client_gone()
        self.current = self.request = None
        self.queue.clear()

    def data_received(self, data: bytes) -> None:
        """Parse; a head that cannot be read is answered and the connection closed."""
        if self.lingering or self.spoilt:
            return
        self.arrived_bytes = len(data)
        if self.request is None:
            self.head_bytes = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._broken(400)
        if self.request is not None:
            if self.request.gathered is not None:
                self._breathe(len(data))
            self._unfinished(self.request)
        if self.queue and len(self.queue) >= _MAX_PIPELINED:
            self.transport.pause_reading()

    def _breathe(self, size: int) -> None:
        """Let others have their turn: the loop would read 8 MB of one sender before it looks at anybody else."""
        self.gulped_bytes += size
        if self.gulped_bytes > LARGE_BYTES:
            self.gulped_bytes = 0
            self.transport.pause_reading()
            self.server.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if len(self.queue) < _MAX_PIPELINED and not self.transport.is_closing():
            self.transport.resume_reading()

    def _decline(self, rest: bytes) -> None:
        """Read on in HTTP/1.1 where a client offered another protocol, as Java's own client does with every request.

        The parser stops behind such a head, so another one is told how the body is framed and goes on from there.
        """
        while (request := self.request) is not None and self.offered:
            self.parser = httptools.HttpRequestParser(self)
            try:
                self.parser.feed_data(framing(request.method, request.headers, http10=request.http10))
                self.offered = False
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
            except httptools.HttpParserError:
                self._broken(400)

    def _unfinished(self, request: Exchange) -> None:
        """Bound what may still come of a request that this read has not completed."""
        limits = self.server.limits
        if request.head_at:
            if not request.handed:
                self.deadline = min(clock.mono() + limits.body_idle, request.head_at + limits.body)
            return
        if self.head_bytes <= 0:
            self.deadline = clock.mono() + limits.head
        self.head_bytes += self.arrived_bytes
        if self.head_bytes > limits.head_bytes:
            self._broken(431)

    def eof_received(self) -> bool:
        """Treat a closed sending side as a client that left: the two cannot be told apart, and an engine runs."""
        return False

    def pause_writing(self) -> None:
        """Pass back-pressure on to whoever produces the answer."""
        if self.current is not None and self.current.listener is not None:
            self.current.listener.pause()

    def resume_writing(self) -> None:
        """Let the answer flow again."""
        if self.current is not None and self.current.listener is not None:
            self.current.listener.resume()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Make the exchange."""
        if self.lingering or self.spoilt or self.offered:
            return
        self.request = Exchange(self, self.body_limit)

    def on_url(self, piece: bytes) -> None:
        """Collect the target."""
        if self.request is not None and not self.offered:
            self.request.target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header; a repeated one is joined, so that two keys never look like one. Trailers are dropped."""
        request = self.request
        if request is None or request.head_at:  # a trailer would change a head that has been judged already
            return
        name = name.lower()
        headers = request.headers
        if name in headers:
            request.size += 1
            value = headers[name] + b", " + value
            if request.size > self.server.limits.headers or len(value) > self.server.limits.head_bytes:
                self._broken(431)
        headers[name] = value.rstrip(b" \t")  # the parser leaves them at the end

    def on_headers_complete(self) -> None:
        """Let the application look at the head before a byte of the body is kept."""
        request = self.request
        if request is None or self.offered:
            return
        server = self.server
        wrong = self._odd(request)
        if wrong:
            self._broken(wrong)
            return
        request.head_at = clock.mono()
        request.size = 0
        request.wanted = server.guard(request, server.app.head)
        headers = request.headers
        length = int(headers.get(b"content-length", b"0"))
        if request.wanted and length > request.body_limit:
            request.fault = 413
        if b"expect" in headers:
            request.expects = headers[b"expect"].lower() == b"100-continue"
        if request.fault or (not request.wanted and (request.expects or length > _DISCARD_BYTES)):
            self._hand_over(request)
        elif request.expects and self.current is None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.expects = False

    def _odd(self, request: Exchange) -> int:
        """Learn what the parser knows of a head; gives the status that refuses it, or 0."""
        parser, headers, limits = self.parser, request.headers, self.server.limits
        if len(request.target) > limits.target_bytes:
            return 414
        if len(headers) > limits.headers:
            return 431
        before = self.head_bytes
        if (self.arrived_bytes if before < 0 else before + self.arrived_bytes) > limits.head_bytes:  # perhaps a body
            size = sum(len(name) + len(value) for name, value in headers.items())
            if size > limits.head_bytes:
                return 431
        request.method = parser.get_method()
        if request.method == b"CONNECT":
            return 400
        self.offered = b"upgrade" in headers and parser.should_upgrade()
        keep = parser.should_keep_alive()
        request.close = not keep
        # Without a connection header only 1.1 is kept, so the version need not be asked for.
        request.http10 = (not keep or b"connection" in headers) and parser.get_http_version() == "1.0"
        return 0

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body, or drop it when nobody wants it."""
        request = self.request
        if request is None or request.handed:
            return
        request.size += len(piece)
        if request.wanted:
            if request.size <= LARGE_BYTES:
                request.parts.append(piece)
            else:
                request.gather(piece)
            if request.size > request.body_limit:
                request.fault = 413
                request.forget()
                self._hand_over(request)
        elif request.size > _DISCARD_BYTES:
            self._hand_over(request)

    def on_message_complete(self) -> None:
        """Hand the request over, in its turn."""
        if self.offered and self.parser.should_upgrade():  # of the offer: the body is still to come
            return
        request, self.request = self.request, None
        if request is None:
            return
        self.deadline = 0.0
        self.head_bytes = -self.arrived_bytes  # the next head may begin in this read, whose bytes are not its own
        request.complete = True
        if not request.handed:
            self._hand_over(request)

    # The rest is ours.

    def _hand_over(self, request: Exchange) -> None:
        request.handed = True
        if self.current is None:
            self.current = request
            self.server.guard(request, self.server.app.request)
        else:
            self.queue.append(request)

    @property
    def peer(self) -> str:
        """The address that is connected; empty where there is none."""
        name = self.transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) and name else ""

    def abort(self) -> None:
        """Break off without an end."""
        self.transport.abort()

    def again(self, exchange: Exchange) -> None:
        """Hand a request to the application once more, in another turn of the loop."""
        self.server.loop.call_soon(self._next, exchange)

    def finished(self, exchange: Exchange, *, closing: bool) -> None:
        """Go on with the next request of this connection, or close it."""
        self.current = None
        if closing:
            self._close(graceful=not exchange.complete)
        elif self.queue:
            self.current = self.queue.popleft()
            self.server.loop.call_soon(self._next, self.current)
            self.transport.resume_reading()
        elif self.request is None:
            self.deadline = clock.mono() + self.server.limits.idle
        elif self.request.expects:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _next(self, exchange: Exchange) -> None:
        if exchange.connection is not None:
            self.server.guard(exchange, self.server.app.request)

    def _close(self, *, graceful: bool) -> None:
        for exchange in (self.request, *self.queue):
            if exchange is not None:
                exchange.connection = None
        self.request = None
        self.queue.clear()
        if graceful and not self.transport.is_closing():
            # Unread bytes at close() make the kernel send a reset, and the client loses the answer just written.
            self.lingering = True
            self.deadline = clock.mono() + self.server.limits.linger
            if self.transport.can_write_eof():  # TLS cannot; there our `connection: close` has said it
                self.transport.write_eof()
        else:
            self.transport.close()

    def _broken(self, status: int) -> None:
        if self.lingering or self.transport.is_closing():
            return
        request, self.request = self.request, None
        if request is not None:
            request.connection = None
        if self.current is None and not self.queue:
            fields, body = self.server.app.broken(status, request.headers if request is not None else {})
            self.transport.write(
                b"%b%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (head(status), fields, len(body), body)
            )
            self._close(graceful=True)
        else:  # the answer that is under way must not be followed by bytes that belong to another request
            self.spoilt = True
            last = self.queue[-1] if self.queue else self.current
            if last is not None:
                last.close = True

    def expire(self, now: float) -> None:
        """Look at the clock: close what idles, refuse what comes too slowly."""
        if not self.deadline or now < self.deadline or (self.current is not None and self.request is None):
            return
        request = self.request
        if self.lingering or request is None:
            self.transport.close()
        elif not request.head_at:
            self._broken(408)
        elif not request.handed:
            request.fault = 408
            self.request = None
            self._hand_over(request)
