"""HTTP/1.1 as the scripted engine speaks it: by hand, because what it must be able to do no library lets it do."""

import asyncio
import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, NoReturn

from stoker.rehearse.dialects.base import Refusal, refusal_body
from stoker.rehearse.event import Head

_HEAD_LIMIT: Final = 64 * 1024
_BODY_LIMIT: Final = 256 * 1024 * 1024
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4"


@dataclass(slots=True)
class Peer:
    """One connection: bytes that came in but were not used yet, and whether the client is still there."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    rest: bytearray = field(default_factory=bytearray)

    async def more(self) -> bool:
        """Wait for more bytes; False when the client has gone."""
        data = await self.reader.read(65536)
        self.rest += data
        return bool(data)


@dataclass(frozen=True, slots=True)
class Incoming:
    """One HTTP request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def die(why: str) -> NoReturn:
    """End as an engine does that is killed from inside: a line in its log, and no goodbye."""
    print(f"rehearse: {why}", file=sys.stderr, flush=True)  # noqa: T201 - its log
    os._exit(1)


async def write(peer: Peer, data: bytes, *, chunked: bool) -> None:
    """Send bytes of a body. A piece that its dialect does not show is empty: as a chunk it would end the body."""
    if data:
        peer.writer.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        if (
            peer.writer.transport.get_write_buffer_size()
        ):  # most writes are taken at once, and a wait costs as much again
            await peer.writer.drain()


async def until_gone(peer: Peer) -> None:
    """Wait until the client closes."""
    while await peer.more():
        if len(peer.rest) > _BODY_LIMIT:
            return


async def receive(peer: Peer) -> Incoming | None:
    """Read one request; None when the client has closed."""
    while b"\r\n\r\n" not in peer.rest:
        if len(peer.rest) > _HEAD_LIMIT or not await peer.more():
            return None
    head, _, rest = bytes(peer.rest).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    peer.rest[:] = rest
    body = await _body(peer, headers)
    return None if body is None else Incoming(method, target.partition("?")[0], headers, body)


async def _body(peer: Peer, headers: dict[str, str]) -> bytes | None:
    if headers.get("expect", "").lower() == "100-continue":
        peer.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunked(peer)
    length = int(headers.get("content-length", "0"))
    return await _take(peer, length) if length <= _BODY_LIMIT else None


async def _chunked(peer: Peer) -> bytes | None:
    body = bytearray()
    while True:
        while b"\r\n" not in peer.rest:
            if not await peer.more():
                return None
        size = int(bytes(peer.rest).partition(b"\r\n")[0].partition(b";")[0], 16)
        del peer.rest[: peer.rest.index(b"\r\n") + 2]
        data = await _take(peer, size + 2)
        if data is None or size == 0:
            return None if data is None else bytes(body)
        body += data[:-2]


async def _take(peer: Peer, length: int) -> bytes | None:
    while len(peer.rest) < length:
        if not await peer.more():
            return None
    data = bytes(peer.rest[:length])
    del peer.rest[:length]
    return data


def head(event: Head) -> bytes:
    """Write the head of an answer."""
    kind = "text/event-stream; charset=utf-8" if event.length is None else JSON
    size = "transfer-encoding: chunked" if event.length is None else f"content-length: {event.length}"
    retry = f"retry-after: {event.retry_after}\r\n" if event.retry_after else ""
    first = f"HTTP/1.1 {event.status} {_phrase(event.status)}"
    return f"{first}\r\ncontent-type: {kind}\r\n{size}\r\n{retry}\r\n".encode()


def error(peer: Peer, status: int, message: str, dialect: str = "") -> bool:
    """Answer with an error in the words of a dialect."""
    return reply(peer, status, refusal_body(dialect, Refusal(status=status, message=message, kind="error")))


def reply(peer: Peer, status: int, body: bytes, *, kind: str = JSON) -> bool:
    """Answer in one piece; True: the connection goes on."""
    peer.writer.write(
        f"HTTP/1.1 {status} {_phrase(status)}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return True


def _phrase(status: int) -> str:
    return next((known.phrase for known in HTTPStatus if known == status), "Scripted")


def cut(peer: Peer, *, reset: bool) -> None:
    """Close in the middle of a body; with a linger time of zero the kernel sends a reset."""
    raw = peer.writer.get_extra_info("socket")
    if reset:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()
    else:
        peer.writer.close()
