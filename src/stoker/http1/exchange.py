"""What is one request and its answer?"""

from typing import Final, Protocol, cast

import msgspec

from stoker.http1.message import head

_OK: Final = head(200)


class Listener(Protocol):
    """Whoever answers an exchange."""

    def client_gone(self) -> None:
        """The client left before its answer was complete."""

    def pause(self) -> None:
        """The client reads too slowly: stop producing."""

    def resume(self) -> None:
        """The client has caught up."""


class Wire(Protocol):
    """The connection as an exchange sees it."""

    draining: bool  # connections close with their answer
    known: object  # what the application remembers of a connection

    @property
    def peer(self) -> str:
        """The address that is connected."""

    def write(self, data: bytes) -> None:
        """Write bytes to the client."""

    def abort(self) -> None:
        """Break off without an end."""

    def again(self, exchange: "Exchange") -> None:
        """Hand a request to the application once more, in another turn of the loop."""

    def finished(self, exchange: "Exchange", *, closing: bool) -> None:
        """Go on with the next request of this connection, or close it."""


class Exchange(msgspec.Struct, eq=False):
    """One request and its answer. A struct, because its many defaults are then set in C: a request makes one."""

    connection: Wire | None  # None: the client left or the answer is complete
    body_limit: int
    method: bytes = b""
    target: bytes = b""
    headers: dict[bytes, bytes] = {}
    parts: list[bytes] = []  # of the body, as long as it is small
    gathered: bytearray | None = None  # a large one, put together while it comes
    size: int = 0
    http10: bool = False
    close: bool = False
    expects: bool = False
    complete: bool = False
    wanted: bool = True
    handed: bool = False
    fault: int = 0
    started: bool = False
    chunked: bool = False
    head_at: float = 0.0
    listener: Listener | None = None
    note: object = None  # the application's own

    @property
    def body(self) -> bytes:
        """The whole body. A large one is a bytearray that nobody changes any more: to make bytes of it takes long."""
        if self.gathered is not None:
            return cast("bytes", self.gathered)
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def gather(self, piece: bytes) -> None:
        """Keep a piece of a large body. Joining 10 MB at their end would hold everybody up."""
        if self.gathered is None:
            self.gathered = bytearray(b"".join(self.parts))
            self.parts = []
        self.gathered += piece

    def forget(self) -> None:
        """Let go of the body."""
        self.parts = []
        self.gathered = None

    def respond(self, status: int, fields: bytes, body: bytes) -> None:
        """Answer at once and completely. ``fields`` are header lines, each with its CRLF."""
        connection = self.connection
        if connection is None:
            return
        closing = self.close or not self.complete or connection.draining
        extra = b"connection: close\r\n" if closing else (b"connection: keep-alive\r\n" if self.http10 else b"")
        self.started = True
        line = _OK if status == 200 else head(status)
        shown = b"" if self.method == b"HEAD" else body
        connection.write(b"%b%bcontent-length: %d\r\n%b\r\n%b" % (line, fields, len(body), extra, shown))
        self.connection = self.listener = self.note = None  # as in _finish
        connection.finished(self, closing=closing)

    def start(self, status: int, fields: bytes) -> bytes:
        """Begin a streamed answer; gives the head bytes, which go out in front of the first ``send`` or ``end``."""
        self.started = True
        if self.http10:
            self.close = True
            return b"%b%bconnection: close\r\n\r\n" % (head(status), fields)
        self.chunked = True
        extra = b"connection: close\r\n" if self._closing() else b""
        return b"%b%btransfer-encoding: chunked\r\n%b\r\n" % (head(status), fields, extra)

    def send(self, data: bytes, prefix: bytes = b"") -> None:
        """Write a piece of a streamed answer in one write."""
        connection = self.connection
        if connection is not None and (data or prefix):
            connection.write(prefix + self._frame(data) if prefix else self._frame(data))

    def end(self, data: bytes = b"", prefix: bytes = b"") -> None:
        """Write the last piece and the end of the body in one write."""
        connection = self.connection
        if connection is None:
            return
        tail = b"0\r\n\r\n" if self.chunked else b""
        connection.write(prefix + self._frame(data) + tail)
        self._finish(connection, closing=self._closing())

    def abort(self) -> None:
        """Break the connection off: the only honest end for a body whose length was promised."""
        connection = self.connection
        if connection is not None:
            self.connection = self.listener = self.note = None
            connection.abort()

    def _frame(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self.chunked and data else data

    def _closing(self) -> bool:
        connection = self.connection
        return self.close or not self.complete or connection is None or connection.draining

    def _finish(self, connection: "Wire", *, closing: bool) -> None:
        # The note knows the exchange: a cycle would keep both until the garbage collector comes by.
        self.connection = self.listener = self.note = None
        connection.finished(self, closing=closing)
