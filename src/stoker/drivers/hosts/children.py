"""Processes that live no longer than their parent: the supervisor's controller and gateways, never engines."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stoker.base.errors import Driver

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start(
    module: str, arguments: Sequence[str], *, log: Path, on_death: signal.Signals, fds: Sequence[int] = ()
) -> int:
    """Start ``python -m module`` in a session of its own; ``on_death`` reaches it when this process dies."""
    parent = os.getpid()

    def prepare() -> None:  # in the child, before exec; the caller has one thread only
        _libc.prctl(_PR_SET_PDEATHSIG, int(on_death), 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=fds,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - the supervisor has one thread
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise Driver(f"cannot start {module}: {error}") from error
    process.returncode = 0  # the supervisor reaps by pid: Popen must neither wait nor warn
    return process.pid


def reap() -> list[tuple[int, int]]:
    """Collect every child that has ended: pid and exit code (negative: the signal)."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    return ended


def bind(address: str, *, backlog: int = 4096) -> socket.socket:
    """Bind and listen on ``HOST:PORT``; whoever holds this socket refuses no connection. Raises Driver."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host.strip("[]"), int(port)))
        made.listen(backlog)
    except (OSError, ValueError) as error:
        made.close()
        raise Driver(f"cannot listen on {address}: {error}") from error
    return made
