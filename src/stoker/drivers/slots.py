"""How many requests run at each endpoint, over all workers of this machine?

A table in a shared file: one row per name, one counter per worker. Taking a slot sums the row under a range lock, so
workers never over-admit together; the kernel drops the lock with the process that held it. A worker that starts clears
its own column, for whoever had it before is dead.
"""

import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stoker.base.errors import Driver

WORKERS: Final = 16
_MARK: Final = 16  # bytes of the name's hash
_HEAD: Final = 64  # the lock for handing out rows


class Rows:
    """Named rows of fixed size in a file that all workers map. Rows are found by the hash of their name."""

    def __init__(self, path: Path, *, row_bytes: int, rows: int = 4096) -> None:
        self._row_bytes = _MARK + row_bytes
        self._rows = rows
        size = _HEAD + rows * self._row_bytes
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Every block is ours before it is mapped: a write into a hole on a full disk kills the worker by SIGBUS.
            os.posix_fallocate(self.fd, 0, size)
            self.map = mmap.mmap(self.fd, size)
        except OSError as error:
            raise Driver(f"cannot map the shared table {path}: {error}") from error
        self._known: dict[str, int] = {}

    def row(self, name: str) -> int:
        """Find the position of a name's row; it is made when there is none."""
        at = self._known.get(name)
        if at is None:
            at = self._known[name] = self._find(hashlib.sha256(name.encode()).digest()[:_MARK]) + _MARK
        return at

    def _find(self, mark: bytes) -> int:
        first = int.from_bytes(mark[:4], "little") % self._rows
        self.lock(0, _HEAD)
        try:
            for step in range(self._rows):
                at = _HEAD + (first + step) % self._rows * self._row_bytes
                seen = self.map[at : at + _MARK]
                if seen == mark:
                    return at
                if seen == bytes(_MARK):
                    self.map[at : at + _MARK] = mark
                    return at
        finally:
            self.unlock(0, _HEAD)
        raise Driver(f"the shared table is full: {self._rows} names; restart the gateways to clear it")

    def positions(self) -> Iterator[int]:
        """Give the position of every row."""
        for index in range(self._rows):
            yield _HEAD + index * self._row_bytes + _MARK

    def lock(self, at: int, size: int) -> None:
        """Take the lock on a range of the file; whoever takes it gives it back in a ``finally``."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX, size, at)

    def unlock(self, at: int, size: int) -> None:
        """Give it back."""
        fcntl.lockf(self.fd, fcntl.LOCK_UN, size, at)

    def close(self) -> None:
        """Unmap."""
        self.map.close()
        os.close(self.fd)


_COUNTS: Final = struct.Struct(f"<{WORKERS}i")
_ONE: Final = struct.Struct("<i")
_pack_one, _read_one, _read_all = _ONE.pack_into, _ONE.unpack_from, _COUNTS.unpack_from


class Slots:
    """Requests in flight per name and worker."""

    def __init__(self, path: Path, worker: int) -> None:
        if not 0 <= worker < WORKERS:
            raise Driver(f"worker {worker} has no column in the slot table: there are {WORKERS}")
        self._table = Rows(path, row_bytes=_COUNTS.size)
        self._worker = worker
        self._column = 4 * worker
        self.forget(worker)

    def take(self, name: str, limit: int) -> bool:
        """Take a slot if fewer than ``limit`` are taken over all workers."""
        table = self._table
        at = table.row(name)
        table.lock(at, _COUNTS.size)
        try:
            counts = _COUNTS.unpack_from(table.map, at)
            if sum(counts) >= limit:
                return False
            _ONE.pack_into(table.map, at + self._column, counts[self._worker] + 1)
        finally:
            table.unlock(at, _COUNTS.size)
        return True

    def add(self, name: str) -> None:
        """Count one more where there is no limit. The column is ours alone, so no lock is needed."""
        at = self._table.row(name) + self._column
        _pack_one(self._table.map, at, _read_one(self._table.map, at)[0] + 1)

    def give(self, name: str) -> None:
        """Give a slot back. The column is ours alone, so no lock is needed."""
        at = self._table.row(name) + self._column
        count = _read_one(self._table.map, at)[0]
        if count > 0:
            _pack_one(self._table.map, at, count - 1)

    def taken(self, name: str) -> int:
        """Count the slots that are taken over all workers."""
        return sum(_read_all(self._table.map, self._table.row(name)))

    def forget(self, worker: int) -> None:
        """Free what a dead worker held."""
        for at in self._table.positions():
            _ONE.pack_into(self._table.map, at + 4 * worker, 0)

    def close(self) -> None:
        """Unmap."""
        self._table.close()
