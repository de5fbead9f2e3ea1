"""What the benchmarks share: the C programs, processes on chosen cores, CPU seconds of a process tree."""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stoker.facts.routes import Caller, Callers, Endpoint, Key, Limits, Routes, Service, State, Target, seal

HERE = Path(__file__).parent
BIN = HERE / "bin"
KEY = "sk-bench"
TICK = os.sysconf("SC_CLK_TCK")
TEXT = "Tell me about the history of computing in one paragraph. "


def build() -> None:
    """Compile load generator and engine."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("the harness is written in C: apt-get install gcc")
    BIN.mkdir(exist_ok=True)
    for name in ("lg", "upstream"):
        source, target = HERE / f"{name}.c", BIN / name
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            subprocess.run([compiler, "-O2", "-w", "-o", target, source], check=True)


def body(marker: str = "", *, stream: bool) -> bytes:
    """Write a request of about 0.8 KB; the marker chooses what the engine does."""
    words = [
        {"role": "system", "content": "You are a helpful assistant. " * 8},
        {"role": "user", "content": marker + TEXT * 8},
    ]
    asked: dict[str, object] = {"model": "m", "messages": words, "max_tokens": 100, "temperature": 0.7}
    return msgspec.json.encode({**asked, "stream": True} if stream else asked)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Running:
    name: str
    port: int
    process: "subprocess.Popen[bytes]"

    @property
    def tree(self) -> list[int]:
        """The process and its children."""
        pids, parents = [self.process.pid], {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        for pid in pids:
            pids += [child for child, parent in parents.items() if parent == pid]
        return pids

    def cpu(self) -> float:
        """CPU seconds used so far."""
        total = 0
        for pid in self.tree:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total / TICK

    def rss_mb(self) -> float:
        """Resident memory of the tree."""
        pages = 0
        for pid in self.tree:
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def running(name: str, argv: Sequence[str | Path], port: int, *, core: int) -> Iterator[Running]:
    """Run a server on one core until the end of the block."""
    pin = ["taskset", "-c", str(core)] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []
    log = (BIN / f"{name}.log").open("wb")
    process = subprocess.Popen([*pin, *map(str, argv)], stdout=log, stderr=log)
    try:
        for _ in range(600):
            if process.poll() is not None:
                sys.exit(f"{name} ended at once; see {log.name}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield Running(name, port, process)
    finally:
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


@contextmanager
def engine() -> Iterator[int]:
    """Run the C engine."""
    port = free_port()
    with running("upstream", [BIN / "upstream", str(port)], port, core=0):
        yield port


ENDLESS = Limits(requests_per_minute=10**9, tokens_per_minute=10**12, tokens_per_day=10**15, concurrent=10**6)


def state(folder: Path, upstream: int, *, slots: int = 0, endpoints: int = 1, limits: Limits | None = None) -> None:
    """Write the policy of a gateway in front of one engine, which may stand for several endpoints."""
    (folder / "keys").mkdir(parents=True, exist_ok=True)
    names = tuple(f"e{number}" for number in range(endpoints))
    specs = tuple(
        Endpoint(
            name=name,
            incarnation=f"{name}-1",
            state=State.SERVE,
            origin=f"http://127.0.0.1:{upstream}",
            stream_upstream=False,
            slots=slots,
            queue=10_000,
        )
        for name in names
    )
    service = Service(name="default/m", models=("m",), targets=(Target(endpoints=names),))
    key = Key(id="k", sha256=hashlib.sha256(KEY.encode()).hexdigest())
    caller = Caller(name="a", keys=(key,), limits=limits or Limits())
    (folder / "routes.json").write_bytes(seal(Routes(generation=1, services=(service,), endpoints=specs)))
    (folder / "callers.json").write_bytes(seal(Callers(generation=1, callers=(caller,))))


@dataclass
class Load:
    """What the load generator saw, and what the server spent."""

    requests: int
    chunks: int
    wrong: int
    cpu: float
    latency_us: list[float]
    chunk_us: list[float]


def memory_per_stream(server: Running, streams: int) -> float:
    """Open streams that stay open after their first event; gives KiB of resident memory for each."""
    data = body("HOLD ", stream=True)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += f"authorization: Bearer {KEY}\r\ncontent-length: {len(data)}\r\n\r\n"
    before = server.rss_mb()
    with contextlib.ExitStack() as stack:
        for _ in range(streams):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            one.sendall(head.encode() + data)
            seen = b""
            while b"data: " not in seen:
                piece = one.recv(65536)
                if not piece:
                    sys.exit(f"{server.name} closed a stream: {seen[:200]!r}")
                seen += piece
        return (server.rss_mb() - before) * 1e6 / 1024 / streams


def load(
    server: Running, mode: str, data: bytes, *, connections: int, seconds: float, path: str = "/v1/chat/completions"
) -> Load:
    """Put load on a server; ``mode``: json, stream, or rate:N for N requests a second."""
    file = BIN / "body.json"
    file.write_bytes(data)
    mode, _, rate = mode.partition(":")
    argv = [BIN / "lg", str(server.port), mode, str(connections), str(seconds), file, *([rate] if rate else [])]
    pin = ["taskset", "-c", "0"] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []
    env = {"LG_KEY": KEY, "LG_WARM": "0", "LG_PATH": path}
    before = server.cpu()
    done = subprocess.run(
        [*pin, *map(str, argv)], check=True, capture_output=True, env=env, timeout=seconds + 60
    )  # a server that hangs must not hang the benchmark
    spent = server.cpu() - before
    seen = msgspec.json.decode(done.stdout)
    wrong = seen["err"] + seen["trunc"] + seen["unfinished"]
    return Load(seen["req"], seen["chunks"], wrong, spent, seen["lat_us"], seen["chunk_us"])
