"""One holder at a time: a file lock that goes with its process, however that dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from stoker.base.errors import Conflict


@contextlib.contextmanager
def hold(path: Path, *, what: str) -> Iterator[None]:
    """Hold the lock while the block runs. Raises Conflict, naming the holder's pid, when somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise Conflict(f"another {what} runs already with this state directory (pid {pid})") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def wait(path: Path) -> Iterator[None]:
    """Hold the lock while the block runs; whoever has it is waited for."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
