"""A whole Stoker in a folder of its own, as its user would run it: the command line, and nothing from inside."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stoker.base import clock

# A shell that starts us in the background makes everything below it deaf to Ctrl-C.
ATTENTIVE = ("env", "--default-signal=INT")
STOKER = [sys.executable, "-m", "stoker.cli.main"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def free_pair() -> int:
    """A port whose successor is free too: the second worker's admin page comes right after the first one's."""
    for _ in range(50):
        port = free_port()
        with socket.socket() as probe, contextlib.suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports in a row")


@dataclass
class Machine:
    """One state directory with its ports. ``key`` is a key of caller ``tests`` once something runs."""

    root: Path
    port: int = field(default_factory=free_port)
    admin: int = field(default_factory=free_pair)
    key: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def run(self, *words: str, stdin: str | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one command as a person would."""
        return subprocess.run(
            [*STOKER, "--state-dir", str(self.root), *words],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=timeout,
            check=False,
        )

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Start one command and leave it running."""
        argv = [*ATTENTIVE, *STOKER, "--state-dir", str(self.root), *words]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ok(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        done = self.run(*words, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, (
            f"stoker {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        )
        return done.stdout

    def data(self, *words: str) -> dict:
        return json.loads(self.ok(*words, "-o", "json"))

    def up(self, *words: str, timeout: float = 120) -> str:
        """Start it in the background and make a key."""
        said = self.ok(
            "up",
            "-d",
            "--listen",
            f"127.0.0.1:{self.port}",
            "--admin",
            f"127.0.0.1:{self.admin}",
            *words,
            timeout=timeout,
        )
        self.key = self.key or self.ok("key", "create", "tests").strip()
        return said

    def start(self, *words: str) -> None:
        """Start controller and gateway without any model."""
        self.up("--bare", *words)

    def down(self) -> None:
        self.run("down", timeout=200)

    def logs(self) -> str:
        """The end of every log, for a failed assertion."""
        logs = sorted((self.root / "logs").glob("*.log"))
        tails = ["\n".join(path.read_text(errors="replace").splitlines()[-12:]) for path in logs]
        return "\n".join(f"--- {path.name}\n{tail}" for path, tail in zip(logs, tails, strict=True))

    def condition(self, kind: str, name: str, condition: str) -> dict:
        found = self.data("get", kind, name)
        return next((c for c in found.get("status", {}).get("conditions", []) if c["type"] == condition), {})

    def replicas(self, deployment: str = "") -> list[dict]:
        listed = self.data("get", "mr").get("items", [])
        return [r for r in listed if not deployment or r["spec"]["deployment"] == deployment]

    def wait(self, what: str, true: object, within: float = 60) -> None:
        """Poll until a callable is true; says what was waited for when it never was."""
        until = clock.mono() + within
        while clock.mono() < until:
            with contextlib.suppress(AssertionError, KeyError, IndexError):
                if true():  # type: ignore[operator]
                    return
            clock.sleep(0.1)
        raise AssertionError(f"not within {within} s: {what}\n{self.run('status').stdout}\n{self.logs()}")

    def supervisor(self) -> int:
        return int(json.loads((self.root / "run" / "supervisor.json").read_text())["pid"])

    def pids(self, module: str) -> list[int]:
        """Processes of this Stoker that run a module: stoker.control, stoker.gateway, shim.py, llama_server."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if re.search(rf"{re.escape(module)}(\s|$)", line) and str(self.root) in line:
                    found.append(int(entry.name))
        return found

    def kill_all(self) -> None:
        """What a power cut does to processes: all of ours at once, children too."""
        mark = str(self.root).encode()
        for _ in range(20):
            doomed = []
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    with contextlib.suppress(OSError):
                        if mark in (entry / "cmdline").read_bytes() or mark in (entry / "environ").read_bytes():
                            doomed.append(int(entry.name))
            if not doomed:
                return
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            clock.sleep(0.05)


@contextlib.contextmanager
def machine(root: Path) -> Iterator[Machine]:
    """A machine that leaves nothing behind, whatever happens."""
    made = Machine(root)
    try:
        yield made
    finally:
        made.down()
        made.kill_all()
