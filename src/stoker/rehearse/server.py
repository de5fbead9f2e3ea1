"""Carry out the events of answers over HTTP/1.1, and count what an engine counts."""

import asyncio
import hmac
import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from stoker.base import clock
from stoker.rehearse.answer import Engine, answer
from stoker.rehearse.dialects.base import Refusal, refusal_body
from stoker.rehearse.event import Crash, Cut, End, Event, Head, Send, Wait
from stoker.rehearse.pace import Pace
from stoker.rehearse.request import PATHS, Request, read
from stoker.rehearse.script import Script

_HEAD_LIMIT: Final = 64 * 1024
_BODY_LIMIT: Final = 256 * 1024 * 1024
_JSON: Final = "application/json"


@dataclass(slots=True)
class Counts:
    """What the metrics page tells."""

    running: int = 0
    waiting: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    generated: int = 0
    finished: Counter[str] = field(default_factory=Counter)


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


class Server:
    """The scripted engine. ``script`` is asked anew for each request."""

    def __init__(
        self,
        engine: Engine,
        *,
        secret: str,
        slots: int,
        script: Callable[[], Script],
        note: Callable[[Incoming, Request], None] | None = None,
        told: Callable[[Pace], None] = lambda _pace: None,
    ) -> None:
        self.engine = engine
        self.secret = secret
        self.slots = slots
        self.script = script
        self.note = note
        self.told = told
        self._played = script()
        self._before = 0
        self.counts = Counts()
        self._free = asyncio.Semaphore(slots)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        peer = Peer(reader, writer)
        try:
            while (incoming := await _receive(peer)) is not None:
                if not await self._serve(incoming, peer):
                    break
        except (ConnectionError, ValueError):
            pass  # the client went, or spoke no HTTP: nobody is left to be told
        except asyncio.CancelledError:
            pass  # the process ends; a task that ends cancelled would fill the log with its trace
        finally:
            writer.close()

    async def _serve(self, incoming: Incoming, peer: Peer) -> bool:
        """Answer one request; False when the connection is of no more use."""
        script = self.script()
        if incoming.path == "/health":
            return _reply(peer, script.health_status, b"")
        if not self._known(incoming):
            return _error(peer, 401, "Unauthorized")
        if incoming.path == "/metrics":
            return _reply(peer, 200, self._metrics().encode(), kind="text/plain; version=0.0.4")
        if incoming.path == "/" and incoming.method == "HEAD":
            return _reply(peer, 200, b"")
        if incoming.path == "/v1/models":
            return _reply(peer, 200, self._models(script))
        return await self._ask(incoming, script, peer)

    async def _ask(self, incoming: Incoming, script: Script, peer: Peer) -> bool:
        dialect = PATHS.get(incoming.path)
        if dialect is None or incoming.method != "POST":
            return _error(peer, 404, "Not Found")
        came = clock.mono()
        self.counts.requests += 1
        if script is not self._played:  # faults that come to the first requests come again with a new script
            self._played, self._before = script, self.counts.requests - 1
        number = self.counts.requests
        request = read(incoming.body, dialect=dialect, number=number, turn=number - self._before)
        if request is None:
            return _error(peer, 400, "the body is no JSON object", dialect)
        if self.note is not None:
            self.note(incoming, request)
        self.counts.prompt_tokens += request.prompt_tokens
        return await self._generate(answer(request, script, self.engine), peer, came)

    def _known(self, incoming: Incoming) -> bool:
        headers = incoming.headers
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        return not self.secret or hmac.compare_digest(given.encode(), self.secret.encode())

    async def _generate(self, events: Iterable[Event], peer: Peer, came: float) -> bool:
        """Take a slot and play the events; a client that goes frees the slot at once."""
        playing = asyncio.ensure_future(self._in_slot(events, peer, came))
        watching = asyncio.ensure_future(_until_gone(peer))
        try:
            await asyncio.wait((playing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                self.counts.finished["abort"] += 1
                return False
            return await playing
        finally:
            for task in (playing, watching):
                task.cancel()
            await asyncio.wait((playing, watching))

    async def _in_slot(self, events: Iterable[Event], peer: Peer, came: float) -> bool:
        self.counts.waiting += 1
        waits = self._free.locked()
        try:
            await self._free.acquire()
        finally:
            self.counts.waiting -= 1
        self.counts.running += 1
        try:
            return await self._play(events, peer, Pace(clock.mono() if waits else came))
        finally:
            self.counts.running -= 1
            self._free.release()

    async def _play(self, events: Iterable[Event], peer: Peer, pace: Pace) -> bool:
        chunked = False
        for event in events:
            match event:
                case Wait(seconds=seconds):
                    await pace.wait(seconds)
                case Head():
                    chunked = event.length is None
                    peer.writer.write(_head(event))
                case Send(data=data, tokens=tokens):
                    self.counts.generated += tokens
                    pace.sends(tokens)
                    await _write(peer, data, chunked=chunked)
                case End(reason=reason):
                    self.counts.finished[reason] += 1
                    self.told(pace)
                    peer.writer.write(b"0\r\n\r\n" if chunked else b"")
                    await peer.writer.drain()
                case Cut(reset=reset):
                    _cut(peer, reset=reset)
                    return False
                case Crash():
                    print("rehearse: EngineCore died (scripted crash)", file=sys.stderr, flush=True)  # noqa: T201 - its log
                    os._exit(1)
        return True

    def _models(self, script: Script) -> bytes:
        name = script.model or self.engine.model
        line = {"id": name, "object": "model", "created": 0, "owned_by": "rehearse"}
        if self.engine.context_tokens:
            line["max_model_len"] = self.engine.context_tokens
        return msgspec.json.encode({"object": "list", "data": [line]})

    def _metrics(self) -> str:
        """Write the page under vLLM's names, as its exporter would."""
        counts = self.counts
        rows = [
            ("gauge", "num_requests_running", counts.running),
            ("gauge", "num_requests_waiting", counts.waiting),
            ("gauge", "kv_cache_usage_perc", counts.running / self.slots),
            ("counter", "num_preemptions_total", 0),
            ("counter", "prefix_cache_queries_total", counts.prompt_tokens),
            ("counter", "prefix_cache_hits_total", 0),
            ("counter", "prompt_tokens_total", counts.prompt_tokens),
            ("counter", "generation_tokens_total", counts.generated),
        ]
        label = f'{{engine="0",model_name="{self.engine.model}"}}'
        lines = [f"# TYPE vllm:{name} {kind}\nvllm:{name}{label} {float(value)}" for kind, name, value in rows]
        for reason, count in sorted(counts.finished.items()):
            by_reason = f'{{engine="0",finished_reason="{reason}",model_name="{self.engine.model}"}}'
            lines.append(f"vllm:request_success_total{by_reason} {float(count)}")
        return "\n".join(lines) + "\n"


async def _write(peer: Peer, data: bytes, *, chunked: bool) -> None:
    """Send bytes of a body. A piece that its dialect does not show is empty: as a chunk it would end the body."""
    if data:
        peer.writer.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        await peer.writer.drain()


async def _until_gone(peer: Peer) -> None:
    while await peer.more():
        if len(peer.rest) > _BODY_LIMIT:
            return


async def _receive(peer: Peer) -> Incoming | None:
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


def _head(head: Head) -> bytes:
    kind = "text/event-stream; charset=utf-8" if head.length is None else _JSON
    size = "transfer-encoding: chunked" if head.length is None else f"content-length: {head.length}"
    retry = f"retry-after: {head.retry_after}\r\n" if head.retry_after else ""
    return f"HTTP/1.1 {head.status} {_phrase(head.status)}\r\ncontent-type: {kind}\r\n{size}\r\n{retry}\r\n".encode()


def _error(peer: Peer, status: int, message: str, dialect: str = "") -> bool:
    return _reply(peer, status, refusal_body(dialect, Refusal(status=status, message=message, kind="error")))


def _reply(peer: Peer, status: int, body: bytes, *, kind: str = _JSON) -> bool:
    peer.writer.write(
        f"HTTP/1.1 {status} {_phrase(status)}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return True


def _phrase(status: int) -> str:
    return next((known.phrase for known in HTTPStatus if known == status), "Scripted")


def _cut(peer: Peer, *, reset: bool) -> None:
    """Close in the middle of a body; with a linger time of zero the kernel sends a reset."""
    raw = peer.writer.get_extra_info("socket")
    if reset:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()
    else:
        peer.writer.close()
