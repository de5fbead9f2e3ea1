"""A gateway in this process, engines that follow a script on raw sockets, and a client that counts every byte."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stoker.drivers.spool import HEADER, SUFFIX
from stoker.facts.record import Record
from stoker.facts.routes import Caller, Callers, Endpoint, Key, Limits, Routes, Service, State, Target, Timeouts, seal
from stoker.gateway.worker import Options, Worker, listen

KEY = "sk-test-alice"
OTHER = "sk-test-bob"
CHUNK = (
    'data: {{"id":"c1","object":"chat.completion.chunk","created":1,"model":"up","choices":[{{"index":0,'
    '"delta":{{"content":"{text}"}},"finish_reason":null}}]}}\n\n'
)
FIRST = CHUNK.format(text="Hé").encode()
SECOND = CHUNK.format(text="llo").encode()
FINISH = (
    b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,"delta":{},'
    b'"finish_reason":"stop"}]}\n\n'
)
USAGE = (
    b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"up","choices":[],"usage":'
    b'{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}}\n\n'
)
DONE = b"data: [DONE]\n\n"
WHOLE = FIRST + SECOND + FINISH + USAGE + DONE
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


END = b"0\r\n\r\n"


@dataclass
class Seen:
    """One request as it reached an engine."""

    head: bytes
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)


Script = Callable[["Engine", Seen, asyncio.StreamWriter], Awaitable[None]]


class Engine:
    """An engine that does what its script says, byte by byte."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Seen] = []
        self.running = 0
        self.most = 0
        self.port = 0
        self.release = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int = 0) -> "Engine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        self.release.set()
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                seen = Seen(head, await reader.readexactly(length))
                self.seen.append(seen)
                self.running += 1
                self.most = max(self.most, self.running)
                watch = asyncio.create_task(self._watch(reader, seen))
                try:
                    await self.script(self, seen, writer)
                    await writer.drain()
                finally:
                    self.running -= 1
                    watch.cancel()
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except RuntimeError:  # uvloop's word for a write behind the end of a connection
            if not writer.is_closing():
                raise
        finally:
            writer.close()

    @staticmethod
    async def _watch(reader: asyncio.StreamReader, seen: Seen) -> None:
        while not reader.at_eof() and reader.exception() is None:  # noqa: ASYNC110 -- a reader has no event for it
            await asyncio.sleep(0.005)
        seen.gone.set()


async def whole(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
    """Answer well, one write for each event."""
    writer.write(SSE)
    for event in (FIRST, SECOND, FINISH, USAGE, DONE):
        writer.write(chunk(event))
        await asyncio.sleep(0)
    writer.write(END)


def says(*pieces: bytes, reset: bool = False, close: bool = False, pause: float = 0.0) -> Script:
    """Write exactly these bytes, then keep, close or reset the connection."""

    async def script(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)
        if reset:
            await asyncio.sleep(0.05)
            writer.transport.abort()
        elif close:
            writer.close()

    return script


async def silent(engine: Engine, seen: Seen, _: asyncio.StreamWriter) -> None:
    """Say nothing until let go, or until the gateway has left."""
    waits = [asyncio.create_task(event.wait()) for event in (engine.release, seen.gone)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


@dataclass
class Reply:
    status: int
    head: bytes
    body: bytes
    complete: bool  # the body ended by its own framing

    def header(self, name: str) -> str:
        for line in self.head.split(b"\r\n"):
            key, _, value = line.partition(b": ")
            if key.decode().lower() == name:
                return value.decode()
        return ""


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def reply(self, *, head_only: bool = False) -> Reply:
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        lower = head.lower()
        if status == 100 or head_only:
            return Reply(status, head, b"", complete=True)
        if b"content-length:" in lower:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            return Reply(status, head, await self.reader.readexactly(length), complete=True)
        if b"chunked" not in lower:
            return Reply(status, head, await self.reader.read(), complete=True)
        body = b""
        try:
            while True:
                size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
                piece = await self.reader.readexactly(size + 2)
                assert piece.endswith(b"\r\n")
                body += piece[:-2]
                if not size:
                    return Reply(status, head, body, complete=True)
        except (asyncio.IncompleteReadError, ConnectionError):
            return Reply(status, head, body, complete=False)

    def close(self) -> None:
        self.writer.transport.abort()


def post(
    body: dict[str, object] | bytes, *, path: str = "/v1/chat/completions", key: str | None = KEY, extra: str = ""
) -> bytes:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    auth = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{auth}{extra}"
    head += f"content-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def ask(**members: object) -> dict[str, object]:
    return {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **members}


@dataclass
class Rig:
    folder: Path
    port: int
    admin: int
    worker: Worker
    stop: asyncio.Event
    generation: int = 1

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def once(self, request: bytes) -> Reply:
        client = await self.connect()
        try:
            client.send(request)
            return await asyncio.wait_for(client.reply(head_only=request.startswith(b"HEAD")), 10)
        finally:
            client.close()

    def records(self) -> list[Record]:
        found = []
        for segment in sorted((self.folder / "spool").glob(f"*{SUFFIX}")):
            data, at = segment.read_bytes(), 0
            while at + HEADER.size <= len(data) and (length := HEADER.unpack_from(data, at)[0]):
                at += HEADER.size
                found.append(msgspec.msgpack.decode(data[at : at + length], type=Record))
                at += length
        return found

    async def record(self, count: int = 1) -> Record:
        await until(lambda: len(self.records()) >= count)
        return self.records()[count - 1]

    async def idle(self) -> None:
        """Wait until nothing runs, and check that nothing was kept."""
        house = self.worker.house
        await until(lambda: not house.active)
        for up in house.fleet.upstreams.values():
            assert up.local == 0
            assert up.shared.taken(up.spec.incarnation) == 0
        assert self.worker.live().in_flight == ()

    async def load(self, routes: Routes) -> None:
        self.generation += 1
        routes = msgspec.structs.replace(routes, generation=self.generation)
        (self.folder / "routes.json").write_bytes(seal(routes))
        await until(lambda: self.worker.house.fleet.routes.generation == self.generation)


async def until(condition: Callable[[], bool], limit: float = 5.0) -> None:
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 -- whatever the condition is
            await asyncio.sleep(0.01)


def endpoint(at: Engine | int, /, name: str = "e1", **fields: object) -> Endpoint:
    port = at if isinstance(at, int) else at.port
    given = {"incarnation": f"{name}-1", "state": State.SERVE, "origin": f"http://127.0.0.1:{port}", **fields}
    return msgspec.convert({"name": name, **given}, Endpoint)


def routes(*endpoints: Endpoint, timeouts: Timeouts | None = None, cap: int = 256, **fields: object) -> Routes:
    target = Target(endpoints=tuple(spec.name for spec in endpoints))
    service = Service(
        name="default/tiny",
        models=("tiny", "default/tiny"),
        targets=(target,),
        timeouts=timeouts or Timeouts(),
        max_output_tokens=cap,
    )
    base = Routes(generation=1, services=(service,), endpoints=endpoints)
    return msgspec.structs.replace(base, **fields)


def caller(name: str, key: str, **fields: object) -> Caller:
    one = Key(id=f"{name}-key", sha256=hashlib.sha256(key.encode()).hexdigest())
    return msgspec.structs.replace(Caller(name=name, keys=(one,)), **fields)


@asynccontextmanager
async def gateway(
    folder: Path,
    policy: Routes | None,
    *,
    callers: Sequence[Caller] | None = None,
    unmetered: bool = False,
    worker: int = 0,
) -> AsyncIterator[Rig]:
    (folder / "keys").mkdir(parents=True, exist_ok=True)
    known = callers if callers is not None else (caller("alice", KEY), caller("bob", OTHER, limits=Limits()))
    (folder / "callers.json").write_bytes(seal(Callers(generation=1, callers=tuple(known))))
    if policy is not None:
        (folder / "routes.json").write_bytes(seal(policy))
    made = Worker(Options(folder=folder, drain=2.0, unmetered=unmetered, worker=worker))
    public, admin = listen("127.0.0.1:0"), listen("127.0.0.1:0")
    stop = asyncio.Event()
    rig = Rig(folder, public.getsockname()[1], admin.getsockname()[1], made, stop)
    task = asyncio.create_task(made.run(public, admin, stop=stop))
    try:
        await until(lambda: answers(rig.port))
        yield rig
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


def answers(port: int) -> bool:
    import socket  # noqa: PLC0415 -- only here

    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def engines(*scripts: Script) -> AsyncIterator[list[Engine]]:
    started = [await Engine(script).start() for script in scripts]
    try:
        yield started
    finally:
        for engine in started:
            await engine.stop()
