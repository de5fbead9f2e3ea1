"""How does a request reach an engine, and how does its answer come back? One pool of kept connections per origin.

A call reports to its listener: ``up_head``, then ``up_body`` (one call per read, however many pieces the parser saw),
then exactly one ``up_end``. After ``abort`` or ``release`` it reports nothing more.
"""

import asyncio
import ssl
from enum import StrEnum
from typing import Final, Protocol, cast

import httptools

from stoker.base import clock

_KEEP: Final = 60.0  # idle connections older than this are not trusted (llama.cpp closes after 5 s and says so by FIN)
_RELEASE: Final = 5.0  # how long an engine may take to end a body whose last event has already come


class End(StrEnum):
    """How a call ended."""

    COMPLETE = "complete"  # the message is whole, by its own framing
    CLEAN = "clean"  # the engine closed in the middle, or instead of an end of the body
    RESET = "reset"  # the connection broke
    CONNECT = "connect"  # no connection came about
    TIMEOUT = "timeout"  # no connection came about in time
    GARBAGE = "garbage"  # not HTTP


class Listener(Protocol):
    """Whoever made the call."""

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The final head has come (1xx are skipped)."""

    def up_body(self, data: bytes) -> None:
        """All of the body that one read brought."""

    def up_end(self, end: End, *, stale: bool) -> None:
        """Nothing more will come. ``stale``: a reused connection died before a byte of the answer: safe to repeat."""


class Call(asyncio.Protocol):
    """One upstream connection; it serves one call after another."""

    __slots__ = (
        "aborted",
        "alive",
        "born",
        "delimited",
        "fresh_head",
        "got",
        "headers",
        "idle_since",
        "keepable",
        "listener",
        "parser",
        "paused",
        "pieces",
        "pool",
        "released_at",
        "reused",
        "status",
        "transport",
        "whole",
    )

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self.listener: Listener | None = None
        self.transport: asyncio.Transport | None = None
        self.alive = False
        self.aborted = False
        self.reused = False
        self.paused = False
        self.idle_since = 0.0
        self.released_at = 0.0
        self.parser = httptools.HttpResponseParser(self)  # it begins anew after each whole message
        self._clear()

    def _clear(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.status = 0
        self.fresh_head = False
        self.got = False
        self.whole = False
        self.keepable = False
        self.delimited = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass of it
        self.alive = True

    def start(self, listener: Listener, wire: tuple[bytes, ...]) -> None:
        """Send one request."""
        self.listener = listener
        self._clear()
        if self.transport is not None:
            if len(wire) == 1:
                self.transport.write(wire[0])
            else:  # a large body is not copied behind its head
                self.transport.writelines(wire)

    def data_received(self, data: bytes) -> None:
        """Parse, and hand on all that this read brought in one call."""
        if self.idle_since:  # bytes that nobody asked for: whatever follows could not be told apart
            self._drop()
            return
        self.got = True
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.whole:
                if self.listener is not None:
                    self._flush(self.listener)
                self._end(End.GARBAGE)
                self._drop()
                return
        if self.listener is not None:
            self._flush(self.listener)
        if self.whole:
            self._complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say how it ended; a body that only the end of the connection delimits is then complete."""
        self.alive = False
        self.pool.forget(self)
        if self.status and not self.delimited and exc is None:
            self._end(End.COMPLETE)
        else:
            self._end(End.CLEAN if exc is None else End.RESET)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Refuse a second answer behind a whole one: nobody asked for it, and it would pass for the next one's."""
        if self.whole:
            self.keepable = False
            raise ValueError("bytes behind a whole answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Report the head, unless it is an interim one."""
        status = self.parser.get_status_code()
        if status < 100:
            raise ValueError("no such status")  # the parser lets 004 pass; the read then ends as garbage
        if status < 200:
            self.headers = {}
            return
        self.status = status
        headers = self.headers
        self.delimited = b"content-length" in headers or b"chunked" in headers.get(b"transfer-encoding", b"")
        self.fresh_head = True  # reported after the parser returns: it would swallow what a listener raises

    def on_body(self, piece: bytes) -> None:
        """Keep a piece until the read is done: one write to the client per read from the engine."""
        if not self.status:
            raise ValueError("an interim answer has no body")
        if self.listener is not None:
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        """Note the end of the final message."""
        if self.status:
            self.whole = True
            self.keepable = self.parser.should_keep_alive()  # the parser forgets it when this call returns

    # The rest is ours.

    def _flush(self, listener: Listener) -> None:
        if self.fresh_head:
            self.fresh_head = False
            listener.up_head(self.status, self.headers)
        pieces = self.pieces
        if pieces and self.listener is not None:  # the head may have ended the call
            self.pieces = []
            self.listener.up_body(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _complete(self) -> None:
        transport = self.transport
        keep = self.alive and transport is not None and self.keepable
        if keep and transport is not None and transport.get_write_buffer_size() == 0 and not transport.is_closing():
            if self.paused:
                self.resume()
            if self.released_at:
                self.released_at = 0.0
                self.pool.releasing.discard(self)
            self.pool.keep(self)
        else:  # an answer before the request was sent out: the rest of the request is still in this pipe
            self._drop()
        self._end(End.COMPLETE)

    def _end(self, end: End) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.up_end(end, stale=self.reused and not self.got)

    def _drop(self) -> None:
        self.alive = False
        self.pool.forget(self)
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        """Stop reading from the engine."""
        if self.transport is not None and self.alive:
            self.paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.transport is not None and self.alive and self.paused:
            self.paused = False
            self.transport.resume_reading()

    def abort(self) -> None:
        """End the call now: the engine sees the connection close and stops generating."""
        self.listener = None
        self.aborted = True
        self._drop()

    def release(self) -> None:
        """Let the engine end its body by itself; nobody listens any more. The connection may then be used again."""
        self.listener = None
        self.pieces = []
        if self.idle_since or not self.alive:
            return
        self.released_at = clock.mono()
        self.resume()
        self.pool.releasing.add(self)


class Pool:
    """The connections to one origin."""

    def __init__(self, origin: str, *, tls: ssl.SSLContext | None = None) -> None:
        scheme, _, rest = origin.partition("://")
        host, _, port = rest.rstrip("/").rpartition(":")
        if not host or not port.isdigit():
            host, port = rest.rstrip("/"), "443" if scheme == "https" else "80"
        self.host = host.strip("[]")
        self.port = int(port)
        self.authority = rest.rstrip("/").encode()
        self.tls = tls or (ssl.create_default_context() if scheme == "https" else None)
        self.idle: list[Call] = []
        self.releasing: set[Call] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.connected_at = 0.0

    def send(self, listener: Listener, wire: tuple[bytes, ...], *, connect: float, fresh: bool = False) -> Call:
        """Send a request on a kept connection or on a new one; ``fresh`` refuses a kept one."""
        while self.idle and not fresh:
            call = self.idle.pop()
            usable = call.alive and clock.mono() - call.idle_since < _KEEP
            call.idle_since = 0.0
            if usable and call.transport is not None and not call.transport.is_closing():
                call.reused = True
                call.start(listener, wire)
                return call
            call.abort()
        call = Call(self)
        call.listener = listener
        task = asyncio.get_running_loop().create_task(self._connect(call, wire, connect))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return call

    async def _connect(self, call: Call, wire: tuple[bytes, ...], limit: float) -> None:
        end = End.CONNECT
        try:
            async with asyncio.timeout(limit):
                await asyncio.get_running_loop().create_connection(lambda: call, self.host, self.port, ssl=self.tls)
        except TimeoutError:
            end = End.TIMEOUT
        except OSError:  # refused, unreachable, no such name, no trusted certificate
            end = End.CONNECT
        else:
            self.connected_at = clock.mono()
            listener = call.listener
            if call.aborted or listener is None:
                call.abort()
            else:
                call.start(listener, wire)
            return
        listener, call.listener = call.listener, None
        if listener is not None:
            listener.up_end(end, stale=False)

    def keep(self, call: Call) -> None:
        """Take back a connection whose message is complete."""
        call.idle_since = clock.mono()
        self.idle.append(call)

    def forget(self, call: Call) -> None:
        """Drop a connection that is gone."""
        self.releasing.discard(call)
        if call.idle_since and call in self.idle:
            self.idle.remove(call)

    def sweep(self, now: float) -> None:
        """Close what has idled too long and what does not end its body."""
        for call in [call for call in self.releasing if now - call.released_at > _RELEASE]:
            call.abort()
        for call in [call for call in self.idle if now - call.idle_since > _KEEP]:
            call.abort()

    def close(self) -> None:
        """Close every idle connection; running calls belong to their listeners."""
        for call in [*self.idle, *self.releasing]:
            call.abort()
