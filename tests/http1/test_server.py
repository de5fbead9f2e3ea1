"""The server's edges: exact bytes for what is odd, slow, large or hostile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.http1.connection import Limits
from stoker.http1.exchange import Exchange
from stoker.http1.server import Server

pytestmark = pytest.mark.anyio


class Echo:
    """Answers with what came; /stream in pieces; /never not at all; /bad raises."""

    def __init__(self) -> None:
        self.gone = 0
        self.exchanges: list[Exchange] = []

    def head(self, exchange: Exchange) -> bool:
        return not exchange.target.startswith(b"/unwanted")

    def request(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        exchange.listener = self
        if exchange.fault:
            exchange.respond(exchange.fault, b"", b"fault")
        elif exchange.target == b"/bad":
            raise KeyError("bug")
        elif exchange.target == b"/stream":
            exchange.send(b"one", exchange.start(200, b""))
            exchange.end(b"two")
        elif exchange.target != b"/never":
            exchange.respond(200, b"x-len: %d\r\n" % exchange.size, exchange.method + b" " + exchange.body)

    def broken(self, status: int, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        del headers
        return b"content-type: application/json\r\n", b"broken %d" % status

    def client_gone(self) -> None:
        self.gone += 1

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@asynccontextmanager
async def serving(limits: Limits | None = None, body_limit: int = 1000) -> AsyncIterator[tuple[Server, Echo, int]]:
    app = Echo()
    server = Server(app, limits=limits, body_limit=body_limit)
    listener = await asyncio.get_running_loop().create_server(server.protocol, "127.0.0.1", 0)
    yield server, app, listener.sockets[0].getsockname()[1]
    listener.close()
    server.stop()


async def talk(port: int, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send pieces, then read until the server closes or has been silent for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause)
        while True:
            piece = await asyncio.wait_for(reader.read(65536), 0.4)
            if not piece:
                return answer + b"<closed>"
            answer += piece
    except (TimeoutError, ConnectionError):
        return answer
    finally:
        writer.transport.abort()


POST = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
GOOD = b"HTTP/1.1 200 OK\r\nx-len: 3\r\ncontent-length: 8\r\n\r\nPOST abc"


# What Java's own client says with every request in clear text.
OFFER = b"POST /a HTTP/1.1\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEA\r\n"


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        pytest.param(POST, GOOD, id="plain"),
        pytest.param(POST * 5, GOOD * 5, id="pipelined"),
        pytest.param(POST * 30, GOOD * 30, id="pipelined beyond the limit"),
        pytest.param(
            b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2;x=y\r\nbc\r\n0\r\n\r\n",
            GOOD,
            id="chunked",
        ),
        pytest.param(OFFER + b"content-length: 3\r\n\r\nabc", GOOD, id="another protocol offered"),
        pytest.param((OFFER + b"content-length: 3\r\n\r\nabc") * 2 + POST, GOOD * 3, id="offered twice"),
        pytest.param(
            OFFER + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n" + POST,
            GOOD * 2,
            id="offered, chunked",
        ),
        pytest.param(
            OFFER.replace(b"POST", b"GET") + b"\r\n" + POST,
            b"HTTP/1.1 200 OK\r\nx-len: 0\r\ncontent-length: 4\r\n\r\nGET " + GOOD,
            id="offered without a body",
        ),
        pytest.param(
            b"HEAD /a HTTP/1.1\r\nhost: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-len: 0\r\ncontent-length: 5\r\n\r\n",
            id="HEAD",
        ),
        pytest.param(
            b"GET /a HTTP/1.0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-len: 0\r\ncontent-length: 4\r\nconnection: close\r\n\r\nGET <closed>",
            id="HTTP/1.0",
        ),
        pytest.param(
            b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-len: 0\r\ncontent-length: 4\r\nconnection: keep-alive\r\n\r\nGET ",
            id="HTTP/1.0 kept",
        ),
        pytest.param(
            b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-len: 0\r\ncontent-length: 4\r\nconnection: close\r\n\r\nGET <closed>",
            id="close",
        ),
        pytest.param(
            b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
            id="streamed",
        ),
        pytest.param(
            b"GET /stream HTTP/1.0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonetwo<closed>",
            id="streamed to HTTP/1.0",
        ),
        pytest.param(
            b"GET /bad HTTP/1.1\r\nhost: x\r\n\r\n",
            b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: 10\r\n"
            b"connection: close\r\n\r\nbroken 500<closed>",
            id="a bug is a 500",
        ),
    ],
)
async def test_bytes(sent: bytes, want: bytes) -> None:
    async with serving() as (_, __, port):
        assert await talk(port, sent) == want
        pieces = [sent[at : at + 1] for at in range(len(sent))] if len(sent) < 300 else [sent]
        assert await talk(port, *pieces) == want


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(
            b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="both lengths",
        ),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc", 400, id="two lengths"),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc", 400, id="signed length"),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length : 3\r\n\r\nabc", 400, id="space before the colon"),
        pytest.param(b"GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n", 400, id="folded header"),
        pytest.param(b"GET / HTTP/1.1\r\na: b\0c\r\n\r\n", 400, id="NUL"),
        pytest.param(b"hello\r\n\r\n", 400, id="no HTTP"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n", 400, id="tunnel"),
        pytest.param(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414, id="long target"),
        pytest.param(b"GET / HTTP/1.1\r\na: " + b"b" * 70000 + b"\r\n\r\n", 431, id="one large header"),
        pytest.param(b"GET / HTTP/1.1\r\na: " + b"b" * 200000, 431, id="a header without end"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(200)) + b"\r\n", 431, id="many"),
    ],
)
async def test_what_cannot_be_read_is_refused_and_closed(sent: bytes, status: int) -> None:
    async with serving() as (_, app, port):
        answer = await talk(port, sent)

        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert answer.endswith(b"<closed>")
        assert app.exchanges == []


async def test_nothing_behind_garbage_is_answered() -> None:
    async with serving() as (_, app, port):
        answer = await talk(port, POST + b"\0garbage\r\n\r\n" + POST)

        assert answer.startswith(GOOD + b"HTTP/1.1 400 ")
        assert answer.endswith(b"broken 400<closed>")
        assert len(app.exchanges) == 1


async def test_bodies_have_a_limit_however_they_come() -> None:
    big = b"x" * 5000
    async with serving() as (_, __, port):
        for request in (
            b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n" + big,
            b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1388\r\n" + big + b"\r\n0\r\n\r\n",
        ):
            answer = await talk(port, request, POST)
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert answer.count(b"HTTP/1.1") == 1


class Sink(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.got = b""
        self.reading: list[bool] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.got += data

    def pause_reading(self) -> None:
        self.reading.append(False)

    def resume_reading(self) -> None:
        self.reading.append(True)

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.got += b"<closed>"


async def test_a_large_body_is_read_in_several_turns_of_the_loop() -> None:
    """A sender who fills the socket as fast as it is read would have the loop to itself for 8 MB."""
    async with serving(body_limit=8 << 20) as (server, app, _):
        connection, sink = server.protocol(), Sink()
        connection.connection_made(sink)
        connection.data_received(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (4 << 20))
        for _ in range(16):
            connection.data_received(bytes(256 << 10))
            if sink.reading[-1:] == [False]:
                await asyncio.sleep(0)
                assert sink.reading[-1]

        assert sink.reading == [False, True] * 2
        assert [exchange.size for exchange in app.exchanges] == [4 << 20]
        server.connections.discard(connection)


@pytest.mark.parametrize("start", [b"POST /a HT", POST[:-20], POST])
async def test_a_large_body_is_not_counted_into_the_head_behind_it(start: bytes) -> None:
    """Both come in one read here, as they may from a socket."""
    big = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 150000\r\n\r\n" + b"x" * 150_000
    async with serving(body_limit=1 << 20) as (server, app, _):
        connection, sink = server.protocol(), Sink()
        connection.connection_made(sink)
        connection.data_received(big + start)
        connection.data_received(POST[len(start) :])
        await asyncio.sleep(0)

        assert [exchange.size for exchange in app.exchanges] == [150_000, 3]
        assert sink.got.endswith(GOOD)
        connection.data_received(b"GET / HTTP/1.1\r\na: " + b"b" * 70_000)
        assert sink.got.endswith(b"broken 431<closed>")
        server.connections.discard(connection)


async def test_continue_is_sent_only_for_a_body_that_is_wanted() -> None:
    head = b" HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"
    async with serving() as (_, __, port):
        assert (await talk(port, b"POST /a" + head, b"abc", pause=0.05)) == b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD
        refused = await talk(port, b"POST /unwanted" + head, pause=0.05)
        assert b"100 Continue" not in refused
        assert refused.startswith(b"HTTP/1.1 200")


async def test_slow_senders_are_cut_off() -> None:
    limits = Limits(head=0.15, body_idle=0.15, idle=0.15, sweep=0.05)
    async with serving(limits) as (_, app, port):
        assert (await talk(port, b"GET / HT", pause=0.3)).startswith(b"HTTP/1.1 408 ")
        assert (await talk(port, pause=0.0)).endswith(b"<closed>")
        slow_body = await talk(port, b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc", pause=0.3)
        assert slow_body.startswith(b"HTTP/1.1 408 ")
        assert app.exchanges[-1].fault == 408
        assert (await talk(port, POST, pause=0.3)) == GOOD + b"<closed>"


async def test_who_leaves_is_reported_once_and_a_drain_closes_what_idles() -> None:
    async with serving() as (server, app, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /never HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        assert app.gone == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.05)
        server.drain()
        assert await reader.read() == b""
        writer.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 200), max_size=12), st.integers(1, 4))
def test_pipelined_requests_cut_anywhere_get_the_same_answers(cuts: list[int], count: int) -> None:
    async def run() -> bytes:
        async with serving() as (_, __, port):
            data, pieces = POST * count, []
            for cut in cuts:
                pieces.append(data[:cut])
                data = data[cut:]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for piece in (*pieces, data):
                writer.write(piece)
                await asyncio.sleep(0)
            answer = await asyncio.wait_for(reader.readexactly(len(GOOD) * count), 5)
            writer.transport.abort()
            return answer

    assert asyncio.run(run()) == GOOD * count
