"""A table of fixed entries in a file, found by a mark of eight bytes. What is old makes room for what is new.

Nothing is ever full: two marks that fall on one entry overwrite each other, which loses a suspicion or a duplicate and
nothing else. The kernel drops a lock with the process that held it.
"""

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import Final

from stoker.base.errors import Driver

MARK: Final = 8
_HEAD: Final = 64


class Mapped:
    """Entries of one struct, behind a head that is the user's own."""

    def __init__(self, path: Path, entry: struct.Struct, *, entries: int = 4096) -> None:
        self._entry = entry
        self._entries = entries
        self._size = MARK + entry.size
        size = _HEAD + entries * self._size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Every block is ours before it is mapped: a write into a hole on a full disk kills the worker by SIGBUS.
            os.posix_fallocate(self.fd, 0, size)
            self.map = mmap.mmap(self.fd, size)
        except OSError as error:
            raise Driver(f"cannot map the shared table {path}: {error}") from error

    def _at(self, mark: bytes) -> int:
        return _HEAD + int.from_bytes(mark, "little") % self._entries * self._size

    def get(self, mark: bytes) -> tuple[float, ...] | None:
        """Read the entry of a mark; None: it has none."""
        at = self._at(mark)
        if self.map[at : at + MARK] != mark:
            return None
        found: tuple[float, ...] = self._entry.unpack_from(self.map, at + MARK)
        return found

    def put(self, mark: bytes, *values: float) -> None:
        """Write the entry of a mark; whoever reads and then writes holds the lock meanwhile."""
        at = self._at(mark)
        self.map[at : at + MARK] = mark
        self._entry.pack_into(self.map, at + MARK, *values)

    def drop(self, mark: bytes) -> None:
        """Remove the entry of a mark."""
        at = self._at(mark)
        if self.map[at : at + MARK] == mark:
            self.map[at : at + MARK] = bytes(MARK)

    def lock(self, mark: bytes) -> None:
        """Take the lock on an entry; whoever takes it gives it back in a ``finally``."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX, self._size, self._at(mark))

    def unlock(self, mark: bytes) -> None:
        """Give it back."""
        fcntl.lockf(self.fd, fcntl.LOCK_UN, self._size, self._at(mark))

    def close(self) -> None:
        """Unmap."""
        self.map.close()
        os.close(self.fd)
