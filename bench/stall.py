"""How long does one large request hold everybody else up? Measured inside the gateway: a beat every millisecond.

A beat that comes late was held up by somebody. The longest delay is given twice: by the clock, which on a busy machine
holds what other processes took, and by the CPU time of the loop's own thread, which is what the gateway itself did.
"""

import signal
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
from harness import KEY, Running, free_port, running, state

BEAT = """
import asyncio, json, signal, sys, time
from stoker.gateway.worker import Worker
longest, run, out = [0.0, 0.0], Worker.run, sys.argv.pop()
def told():
    with open(out + ".new", "w") as file:
        json.dump(longest, file)
    import os
    os.replace(out + ".new", out)
    longest[:] = [0.0, 0.0]
async def beat():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, told)
    while True:
        clock, used = time.perf_counter(), time.thread_time()
        await asyncio.sleep(0.001)
        longest[0] = max(longest[0], time.perf_counter() - clock - 0.001)
        longest[1] = max(longest[1], time.thread_time() - used)
async def both(self, *given, **named):
    task = asyncio.create_task(beat())
    try:
        await run(self, *given, **named)
    finally:
        task.cancel()
Worker.run = both
from stoker.gateway.__main__ import main
sys.exit(main())
"""


@dataclass
class Stall:
    """The longest delays of a beat, in milliseconds, and how far memory rose, in bodies."""

    clock_ms: float
    own_ms: float
    bodies: float


def large(size: int, dialect: str) -> bytes:
    """Write a request with a conversation of many turns."""
    words = "The quick brown fox jumps over the lazy dog. " * 50
    turns = [
        {"role": ("user", "assistant")[n % 2], "content": f"{n} {words}"} for n in range(size // (len(words) + 40) | 1)
    ]
    asked = {"model": "m", "max_tokens": 100, "messages": turns}
    data = msgspec.json.encode(asked)
    path = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}[dialect]
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {KEY}\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def stalls(upstream: int, *, size: int = 10_000_000, rounds: int = 5) -> dict[str, Stall]:
    """Send large bodies, one after the other; ``idle`` is the same time without any."""
    found = {}
    for dialect in ("idle", "chat", "messages"):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            state(folder, upstream)
            port, out = free_port(), folder / "beat"
            argv = [sys.executable, "-c", BEAT, "--state-dir", folder, "--listen", f"127.0.0.1:{port}", out]
            server = stack.enter_context(running("stoker-beat", argv, port, core=1))
            time.sleep(1.0)
            _told(server, out)
            before = _peak_mb(server)
            for _ in range(rounds):
                if dialect == "idle":
                    time.sleep(0.1)
                else:
                    _send(port, large(size, dialect))
            clock, own = _told(server, out)
            found[dialect] = Stall(clock * 1000, own * 1000, (_peak_mb(server) - before) * 1e6 / size)
    return found


def _told(server: Running, out: Path) -> tuple[float, float]:
    out.unlink(missing_ok=True)
    server.process.send_signal(signal.SIGUSR2)
    for _ in range(200):
        if out.exists():
            clock, own = msgspec.json.decode(out.read_bytes())
            return clock, own
        time.sleep(0.02)
    sys.exit(f"{server.name} does not answer a signal")


def _peak_mb(server: Running) -> float:
    """Give the most memory that the gateway's own process has ever had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1e3


def _send(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(data)
        if not one.recv(65536).startswith(b"HTTP/1.1 200"):
            sys.exit("a large request was not answered well")
