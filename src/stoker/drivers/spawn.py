"""Start and stop Stoker's own background process, and tell whether it lives."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.base.layout import Layout
from stoker.drivers import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The supervisor as its run file tells."""

    pid: int
    alive: bool
    listen: str = ""
    stopping: bool = False


class _RunFile(msgspec.Struct, frozen=True):
    pid: int
    start_ticks: int = 0
    listen: str = ""
    stopping: bool = False


def find(layout: Layout) -> Background | None:
    """Read the supervisor's run file; None where none was ever started."""
    data = files.read(layout.run / "supervisor.json")
    if data is None:
        return None
    try:
        run = msgspec.json.decode(data, type=_RunFile)
    except msgspec.DecodeError:
        return None
    alive = start_ticks(run.pid) == run.start_ticks != 0
    return Background(pid=run.pid, alive=alive, listen=run.listen, stopping=run.stopping)


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/<pid>/stat, which tells a reused pid apart; 0 for a pid that does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def start(module: str, arguments: Sequence[str], *, log: Path) -> int:
    """Start ``python -m module`` in a session of its own, so that a closed terminal does not end it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            close_fds=True,
        )
    return process.pid


def ended(pid: int) -> int | None:
    """Reap a child and return its exit code, or None while it runs or when it is no child of ours."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if done else None


def stop(background: Background, *, keep_engines: bool, timeout: float) -> None:
    """Ask the supervisor to end and wait for it. Raises Driver when it does not within ``timeout``."""
    try:
        os.kill(background.pid, signal.SIGHUP if keep_engines else signal.SIGTERM)
    except ProcessLookupError:
        return
    until = clock.mono() + timeout
    while start_ticks(background.pid):
        ended(background.pid)
        if clock.mono() > until:
            raise Driver(f"the supervisor (pid {background.pid}) did not end within {timeout:.0f} s; see its log")
        clock.sleep(0.05)


def program_output(argv: Sequence[str], *, timeout: float = 60.0) -> str:
    """Run a program and return what it printed. Raises Driver when it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - the program that the user named
            list(argv), capture_output=True, text=True, timeout=timeout, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Driver(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise Driver(f"{' '.join(argv)} failed with {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout.strip()
