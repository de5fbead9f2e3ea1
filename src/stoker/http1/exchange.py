"""What is one request and its answer?"""

from typing import Protocol

from stoker.http1.message import head


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

    @property
    def body_limit(self) -> int:
        """The most bytes that a body may have."""

    @property
    def draining(self) -> bool:
        """Whether connections close with their answer."""

    @property
    def peer(self) -> str:
        """The address that is connected."""

    def write(self, data: bytes) -> None:
        """Write bytes to the client."""

    def abort(self) -> None:
        """Break off without an end."""

    def finished(self, exchange: "Exchange", *, closing: bool) -> None:
        """Go on with the next request of this connection, or close it."""


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "body_limit",
        "chunked",
        "close",
        "complete",
        "connection",
        "expects",
        "fault",
        "handed",
        "head_at",
        "headers",
        "http10",
        "listener",
        "method",
        "note",
        "parts",
        "size",
        "started",
        "target",
        "wanted",
    )

    def __init__(self, connection: "Wire") -> None:
        self.connection: Wire | None = connection  # None: the client left or the answer is complete
        self.method = b""
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.size = 0
        self.body_limit = connection.body_limit
        self.http10 = False
        self.close = False
        self.expects = False
        self.complete = False
        self.wanted = True
        self.handed = False
        self.fault = 0
        self.started = False
        self.chunked = False
        self.head_at = 0.0
        self.listener: Listener | None = None
        self.note: object = None  # the application's own

    @property
    def body(self) -> bytes:
        """The whole body."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def respond(self, status: int, fields: bytes, body: bytes) -> None:
        """Answer at once and completely. ``fields`` are header lines, each with its CRLF."""
        connection = self.connection
        if connection is None:
            return
        closing = self.close or not self.complete or connection.draining
        extra = b"connection: close\r\n" if closing else (b"connection: keep-alive\r\n" if self.http10 else b"")
        self.started = True
        shown = b"" if self.method == b"HEAD" else body
        connection.write(b"%b%bcontent-length: %d\r\n%b\r\n%b" % (head(status), fields, len(body), extra, shown))
        self._finish(connection, closing=closing)

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
