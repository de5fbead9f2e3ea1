"""A gateway worker as a process before one scripted engine that speaks the dialects it is said to."""

import hashlib
import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tests.clients.scripted import Scripted

from stoker.base import clock
from stoker.checks.clients.base import Service as Told
from stoker.drivers.spool import HEADER, SUFFIX
from stoker.facts.record import Record
from stoker.facts.routes import Caller, Callers, Endpoint, Key, Routes, Service, State, Target, Timeouts, seal

KEY = "sk-clients"
CHAT = ("chat", "completions", "embeddings")
EVERY = (*CHAT, "messages", "responses", "rerank")


@dataclass
class Gateway:
    folder: Path
    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def told(self, **changes: object) -> Told:
        """What ``stoker connect`` would find out about it."""
        known = {"origin": self.origin, "model": "fire", "auxiliary": "small", "key": KEY}
        return Told(**{**known, "context_tokens": 131_072, "output_tokens": 8192, "first_byte_seconds": 600, **changes})

    def records(self) -> list[Record]:
        found = []
        for segment in sorted((self.folder / "spool").glob(f"*{SUFFIX}")):
            data, at = segment.read_bytes(), 0
            while at + HEADER.size <= len(data) and (length := HEADER.unpack_from(data, at)[0]):
                at += HEADER.size
                found.append(msgspec.msgpack.decode(data[at : at + length], type=Record))
                at += length
        return found


@contextmanager
def gateway(folder: Path, engine: Scripted, *, dialects: Sequence[str] = EVERY, **fields: object) -> Iterator[Gateway]:
    """Start one; ``fields`` change its routes."""
    (folder / "keys").mkdir(parents=True)
    spec = Endpoint(
        name="e1",
        incarnation="e1-1",
        state=State.SERVE,
        origin=f"http://127.0.0.1:{engine.port}",
        upstream_model="fire",
        credential_file=str(engine.folder / "secret"),
        engine="simulated",
        dialects=tuple(dialects),
        context_tokens=131_072,
    )
    service = Service(
        name="default/fire",
        models=("fire", "default/fire", "small"),
        targets=(Target(endpoints=("e1",)),),
        max_output_tokens=8192,
        timeouts=Timeouts(first_byte=600.0, idle=30.0),
    )
    routes = msgspec.structs.replace(
        Routes(generation=1, services=(service,), endpoints=(spec,), dialects=EVERY), **fields
    )
    (folder / "routes.json").write_bytes(seal(routes))
    key = Key(id="k", sha256=hashlib.sha256(KEY.encode()).hexdigest())
    (folder / "callers.json").write_bytes(seal(Callers(generation=1, callers=(Caller(name="clients", keys=(key,)),))))
    with listening() as listener:
        fd = listener.fileno()
        words = [sys.executable, "-m", "stoker.gateway", "--state-dir", str(folder), "--listen-fd", str(fd)]
        with (folder / "log").open("wb") as log, subprocess.Popen(words, pass_fds=(fd,), stderr=log) as process:
            try:
                made = Gateway(folder, listener.getsockname()[1])
                _ready(made, process)
                yield made
            finally:
                process.terminate()
                process.wait(30)


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        yield listener


def _ready(made: Gateway, process: "subprocess.Popen[bytes]") -> None:
    until = clock.mono() + 20
    while clock.mono() < until:
        assert process.poll() is None, (made.folder / "log").read_text()
        connection = http.client.HTTPConnection("127.0.0.1", made.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass  # not yet
        finally:
            connection.close()
        clock.sleep(0.05)
    raise AssertionError((made.folder / "log").read_text())
