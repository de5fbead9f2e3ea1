"""Does our server read requests as proven ones do? The same bytes to ours and to uvicorn, with both of its parsers.

What a server understood is what smuggling is about: two servers in a row that see different requests in the same bytes.
So each answers with everything that it understood (method, target, headers, body), and the answers are compared. Where
we differ on purpose, the table says how and why.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.server import ServerState

from stoker.http1.exchange import Exchange
from stoker.http1.server import Server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}  # the parser is the same on both loops


PARSERS = ("h11", "httptools")


def understood(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    joined: dict[bytes, bytes] = {}
    for name, value in headers:
        joined[name] = joined[name] + b", " + value if name in joined else value
    fields = b"".join(b"%b=%b;" % pair for pair in sorted(joined.items()))
    return b"[%b %b {%b} %b]" % (method, target, fields, body)


class Ours:
    """Says what it understood."""

    def head(self, _: Exchange) -> bool:
        return True

    def request(self, exchange: Exchange) -> None:
        if exchange.fault:
            exchange.respond(exchange.fault, b"", b"")
            return
        said = understood(exchange.method, exchange.target, exchange.headers.items(), exchange.body)
        exchange.respond(200, b"content-type: text/plain\r\n", said)

    def broken(self, _: int, __: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        return b"", b""


async def theirs(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        more = message["more_body"]
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    said = understood(scope["method"].encode(), target, scope["headers"], body)
    length = (b"content-length", b"%d" % len(said))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain"), length]})
    await send({"type": "http.response.body", "body": said})


class Ports(NamedTuple):
    ours: int
    h11: int
    httptools: int


@asynccontextmanager
async def servers() -> AsyncIterator[Ports]:
    loop = asyncio.get_running_loop()
    server = Server(Ours())
    listeners = [await loop.create_server(server.protocol, "127.0.0.1", 0)]
    states = []
    for name in PARSERS:
        config = uvicorn.Config(
            theirs,
            http=name,
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        config.load()
        state = ServerState()
        states.append(state)

        def protocol(config: uvicorn.Config = config, state: ServerState = state) -> asyncio.Protocol:
            return config.http_protocol_class(config=config, server_state=state, app_state={})  # type: ignore[call-arg]

        listeners.append(await loop.create_server(protocol, "127.0.0.1", 0))
    try:
        yield Ports(*(listener.sockets[0].getsockname()[1] for listener in listeners))
    finally:
        for listener in listeners:
            listener.close()
        server.stop()
        for state in states:
            for connection in list(state.connections):
                connection.transport.abort()
            for task in state.tasks:
                task.cancel()


class Heard(NamedTuple):
    """The answers on one connection: (status, content type, body), and whether the server then closed it."""

    answers: tuple[tuple[int, bytes, bytes], ...]
    closed: bool


async def talk(port: int, sent: bytes) -> Heard:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got, closed = b"", False
    try:
        writer.write(sent)
        while True:
            piece = await asyncio.wait_for(reader.read(65536), 0.5)
            if not piece:
                closed = True
                break
            got += piece
    except TimeoutError:
        pass
    except ConnectionError:
        closed = True
    finally:
        writer.transport.abort()
    return Heard(tuple(parse(got)), closed)


def parse(data: bytes) -> Iterable[tuple[int, bytes, bytes]]:
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, fields = int(head.split()[1]), {}
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            fields[name.strip().lower()] = value.strip()
        length = int(fields.get(b"content-length", b"-1"))
        if length < 0:
            length = len(data)
        body, data = data[:length], data[length:]
        # Only what a request was understood as is compared: each server words its refusals in its own way.
        yield status, fields.get(b"content-type", b"") if status == 200 else b"", body if status == 200 else b""


HOST = b"host: x\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nhost: x\r\n\r\n"

SAME = {
    "get": b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n",
    "query": b"GET /a?b=c&d=%20 HTTP/1.1\r\n" + HOST + b"\r\n",
    "post": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc",
    "empty post": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
    "post without a length": b"POST /a HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "other methods": b"".join(
        m + b" /a HTTP/1.1\r\nhost: x\r\n\r\n" for m in (b"PUT", b"DELETE", b"OPTIONS", b"PATCH")
    ),
    "names in capitals": b"GET /a HTTP/1.1\r\nHOST: x\r\nX-Api-KEY: Q\r\n\r\n",
    "an empty value": b"GET /a HTTP/1.1\r\nhost: x\r\na:\r\n\r\n",
    "a repeated header": b"GET /a HTTP/1.1\r\nhost: x\r\nx-api-key: one\r\nb: c\r\nX-API-Key: two\r\n\r\n",
    "chunked": CHUNKED + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n" + NEXT,
    "chunk extensions": CHUNKED + b"3;name=value\r\nabc\r\n0\r\n\r\n" + NEXT,
    "sizes in hex": CHUNKED + b"A\r\n0123456789\r\n0b\r\n0123456789a\r\n00\r\n\r\n" + NEXT,
    "pipelined": NEXT * 3,
    "a body and the next": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc" + NEXT,
    "a request inside a body": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(NEXT), NEXT)
    + NEXT,
    "close": b"GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" + NEXT,
    "1.0 closes": b"GET /a HTTP/1.0\r\nhost: x\r\n\r\n",
    "two lengths": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "signed length": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: +3\r\n\r\nabc",
    "negative length": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: -3\r\n\r\nabc",
    "length in hex": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 0x3\r\n\r\nabc",
    "huge length": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\nabc",
    "space before the colon": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length : 3\r\n\r\nabc",
    "space in a name": b"GET /a HTTP/1.1\r\nhost: x\r\na b: c\r\n\r\n",
    "a NUL in a value": b"GET /a HTTP/1.1\r\nhost: x\r\na: b\0c\r\n\r\n",
    "no colon": b"GET /a HTTP/1.1\r\nhost: x\r\nabc\r\n\r\n",
    "gzip, chunked": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunk size is no number": CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",
    "chunk size is signed": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk size in 0x": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk longer than it says": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "chunked twice": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "chunked not last": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n" + NEXT,
    "identity": b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity\r\n\r\n" + NEXT,
    "chunked in 1.0": b"POST /a HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT,
    "a CR in a value": b"GET /a HTTP/1.1\r\nhost: x\r\na: b\rc\r\n\r\n" + NEXT,
    "a tab behind the method": b"GET\t/a HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "a space in the target": b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "no end behind a chunk": CHUNKED + b"3\r\nabc0\r\n\r\n" + NEXT,
    "chunks end in LF": CHUNKED + b"3\nabc\n0\n\n" + NEXT,
    "bytes that are not ASCII in the target": b"GET /\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "the whole server": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "a body behind GET": b"GET /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc" + NEXT,
    "a name that looks like another": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent_length: 9\r\n\r\n" + NEXT,
}

# One of the two others reads these; we refuse them and close, and so answer nothing behind them.
REFUSED = {
    "both lengths": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    + NEXT,
    "both, other order": CHUNKED[:-2] + b"content-length: 5\r\n\r\n0\r\n\r\n" + NEXT,
    "the length twice": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc" + NEXT,
    "a list of lengths": b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3, 3\r\n\r\nabc" + NEXT,
    "a space behind a chunk's size": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n" + NEXT,
    "a folded header": b"GET /a HTTP/1.1\r\nhost: x\r\na: b\r\n c\r\n\r\n" + NEXT,
    "lines end in LF": b"GET /a HTTP/1.1\nhost: x\n\n" + NEXT,
    "one line ends in LF": b"GET /a HTTP/1.1\r\nhost: x\na: b\r\n\r\n" + NEXT,
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "a method in small letters": b"get /a HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT,
    "an unknown version": b"GET /a HTTP/3.7\r\nhost: x\r\n\r\n" + NEXT,
}

THE_NEXT = b"[GET /next {host=x;} ]"
# One of the two others refuses these, or reads them otherwise; this is what we understand.
OURS = {
    # Routes are taken by path and model alone: no Host is ever used.
    "no host": (b"GET /a HTTP/1.1\r\n\r\n" + NEXT, b"[GET /a {} ]", THE_NEXT),
    "two hosts": (b"GET /a HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n" + NEXT, b"[GET /a {host=x, y;} ]", THE_NEXT),
    # A whole URL is no path of ours: it is answered with 404, never routed by the host inside it.
    "a whole URL": (b"GET http://y/a HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT, b"[GET http://y/a {host=x;} ]", THE_NEXT),
    "a fragment": (b"GET /a#b HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT, b"[GET /a#b {host=x;} ]", THE_NEXT),
    # Trailers come after the decision about who asks, so they are never headers.
    "trailers": (
        CHUNKED + b"1\r\na\r\n0\r\nauthorization: Bearer x\r\nhost: z\r\n\r\n" + NEXT,
        b"[POST /a {host=x;transfer-encoding=chunked;} a]",
        THE_NEXT,
    ),
    # One of the parsers leaves the space behind a value to whoever reads it.
    "space round a value": (
        b"GET /a HTTP/1.1\r\nhost: x\r\na: \t b c \t \r\n\r\n" + NEXT,
        b"[GET /a {a=b c;host=x;} ]",
        THE_NEXT,
    ),
    # One of the parsers stops behind such a head; to decline is to answer in HTTP/1.1.
    "another protocol offered": (
        b"POST /a HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 3\r\n\r\nabc" + NEXT,
        b"[POST /a {connection=upgrade;content-length=3;host=x;upgrade=h2c;} abc]",
        THE_NEXT,
    ),
    "empty lines first": (b"\r\n\r\n" + NEXT, THE_NEXT),
    "two spaces": (b"GET  /a HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT, b"[GET /a {host=x;} ]", THE_NEXT),
    "1.0, kept": (
        b"GET /a HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n\r\n" + NEXT,
        b"[GET /a {connection=keep-alive;host=x;} ]",
        THE_NEXT,
    ),
}


async def ask_all(port: int, table: Mapping[str, bytes]) -> dict[str, Heard]:
    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(talk(port, sent)) for name, sent in table.items()}
    return {name: task.result() for name, task in tasks.items()}


async def test_the_same_bytes_are_understood_as_the_same_requests() -> None:
    async with servers() as ports:
        ours, h11, httptools = [await ask_all(port, SAME) for port in ports]

    assert all(heard.answers for heard in ours.values())
    assert ours == h11
    assert ours == httptools


async def test_what_others_read_in_two_ways_is_refused() -> None:
    async with servers() as ports:
        ours, h11, httptools = [await ask_all(port, REFUSED) for port in ports]

    refused = Heard(((400, b"", b""),), closed=True)
    assert ours == dict.fromkeys(REFUSED, refused)
    for name in REFUSED:
        assert h11[name] != refused or httptools[name] != refused, f"{name}: no difference any more"


async def test_where_we_read_otherwise_this_is_how() -> None:
    sent = {name: row[0] for name, row in OURS.items()}
    async with servers() as ports:
        ours, h11, httptools = [await ask_all(port, sent) for port in ports]

    for name, (_, *wanted) in OURS.items():
        assert ours[name] == Heard(tuple((200, b"text/plain", said) for said in wanted), closed=False), name
        assert not ours[name] == h11[name] == httptools[name], f"{name}: no difference any more"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=40), st.none() | st.integers(1, 9)), max_size=4))
def test_any_bodies_in_any_framing(bodies: list[tuple[bytes, int | None]]) -> None:
    sent = b""
    for body, step in bodies:
        if step is None:
            sent += b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        else:
            pieces = [body[at : at + step] for at in range(0, len(body), step)]
            sent += CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    sent += b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

    async def run() -> list[Heard]:
        async with servers() as ports:
            return [await talk(port, sent) for port in ports]

    ours, h11, httptools = asyncio.run(run())

    assert len(ours.answers) == len(bodies) + 1
    assert ours.closed
    assert ours == h11 == httptools
