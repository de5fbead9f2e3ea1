"""A real Redis or Valkey on a free port, for the tests of limits over several machines."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.base import clock

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")
needs_redis = pytest.mark.skipif(
    PROGRAM is None, reason="neither redis-server nor valkey-server is here: apt-get install redis-server"
)


class Server:
    """One server; it may be stopped and started again under its port. What it knew is then lost."""

    def __init__(self, folder: Path, *more: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert PROGRAM is not None
        words = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        words += ["--save", "", "--appendonly", "no", *self._more]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = clock.mono() + 10
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, "the server has ended"
            assert clock.mono() < until
            clock.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def say(self, *words: str) -> bytes:
        """Send one command on a connection of its own."""
        line = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(line)
            return connection.recv(65536)


@contextmanager
def server(folder: Path, *more: str) -> Iterator[Server]:
    made = Server(folder, *more)
    made.start()
    try:
        yield made
    finally:
        made.stop()
