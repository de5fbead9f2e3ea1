"""Fuzz the HTTP/1.1 server: any bytes, cut anywhere.

Nothing may raise; the same bytes cut otherwise are the same requests; and where h11, a parser that shares no line with
ours, understands the requests too, it understands the same ones: a difference is what request smuggling is made of.
"""

import asyncio
import sys

import atheris

with atheris.instrument_imports(include=["stoker"]):
    from stoker.http1.connection import Connection, Limits
    from stoker.http1.exchange import Exchange

import h11

Request = tuple[bytes, bytes, bytes]
_LOOP = asyncio.new_event_loop()


class Transport(asyncio.Transport):
    """Takes what is written and remembers whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "wrote behind the end of a connection"
        self.out += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class House:
    """A server without sockets, whose application answers at once and remembers what it understood."""

    def __init__(self) -> None:
        self.app = self
        self.limits = Limits()
        self.body_limit = 1 << 16
        self.draining = False
        self.connections: set[Connection] = set()
        self.loop = _LOOP
        self.seen: list[Request] = []

    def guard(self, exchange: Exchange, call):
        return call(exchange)

    def head(self, exchange: Exchange) -> bool:
        return exchange.method != b"GET"

    def request(self, exchange: Exchange) -> None:
        if exchange.fault:
            exchange.respond(exchange.fault, b"", b"")
            return
        self.seen.append((exchange.method, exchange.target, exchange.body))
        exchange.respond(200, b"", b"ok")

    def broken(self, status: int, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        del headers
        assert 400 <= status < 500
        return b"", b""


def ours(data: bytes, cuts: list[int]) -> tuple[list[Request], bytes]:
    house, transport = House(), Transport()
    connection = Connection(house)
    connection.connection_made(transport)
    start = 0
    for end in (*sorted(cuts), len(data)):
        if start < end and not transport.closed:
            connection.data_received(data[start:end])
        start = max(start, end)
        _LOOP.call_soon(_LOOP.stop)
        _LOOP.run_forever()
    connection.connection_lost(None)
    return house.seen, transport.out


def theirs(data: bytes) -> list[Request]:
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    parser.receive_data(data)
    seen: list[Request] = []
    request, body = None, b""
    try:
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA or (event is h11.PAUSED and parser.our_state is not h11.DONE):
                return seen
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                seen.append((request.method, request.target, body))
                parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                parser.send(h11.EndOfMessage())
                if parser.our_state is not h11.DONE:
                    return seen
                parser.start_next_cycle()
            else:
                return seen
    except h11.ProtocolError:
        return seen


def one(data: bytes) -> None:
    """Run one input: its first bytes say where it is cut."""
    count = data[0] % 5 if data else 0
    marks, text = data[1 : 1 + count], data[1 + count :]
    cuts = [mark * max(1, len(text)) // 256 for mark in marks]
    whole, answered = ours(text, [])
    cut, _ = ours(text, cuts)
    least = min(len(whole), len(cut))
    assert whole[:least] == cut[:least], f"cut at {cuts}: {whole} and {cut}"
    assert answered.count(b"HTTP/1.1 ") >= min(1, len(whole))
    proven = theirs(text)
    for mine, other in zip(whole, proven, strict=False):
        # A GET's body is not wanted here, so we drop it; its framing must still be the same.
        same = mine[:2] == other[:2] and (mine[2] == other[2] or mine[0] == b"GET")
        assert same, f"understood differently: {mine} and {other}"


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
