"""What /proc says about processes."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def boot_id() -> str:
    """Name this boot of the machine; pids and monotonic times of another one mean nothing."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int:
    """When a process started, in ticks since boot: tells a reused pid apart. 0: it does not run."""
    fields = _stat(pid)
    return 0 if not fields or fields[0] in ("Z", "X") else int(fields[19])


def send(pid: int, number: signal.Signals) -> bool:
    """Signal a process; False when it has gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def marked(variable: str) -> Sequence[int]:
    """Find the processes that were started with this environment variable, zombies not counted."""
    wanted = variable.encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):  # gone, or another user's
            if wanted in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return [pid for pid in found if start_ticks(pid)]


def memory_below(roots: AbstractSet[int]) -> dict[int, int]:
    """Resident bytes of all descendants of each root, the root itself not counted."""
    if not roots:
        return {}
    stats = {pid: fields for pid in _pids() if (fields := _stat(pid))}
    total = dict.fromkeys(roots, 0)
    for pid in stats:
        at = pid
        while at in stats:
            at = int(stats[at][1])
            if at in total:
                total[at] += int(stats[pid][21]) * PAGE_BYTES
                break
    return total


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208 - no Path for each process


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the third on (state first); empty when it has gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
