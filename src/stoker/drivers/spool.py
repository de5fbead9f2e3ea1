"""Where does a ledger record lie between the gateway and the ledger? In a file that only grows.

A worker owns its segments, ``<boot>-<number>.seg``: frames of length, CRC-32 and a msgpack payload. They are copied
into a shared mapping of blocks that were allocated beforehand: when ``append`` returns, the kernel's pages hold the
frame, so killing the worker loses nothing, and no system call was made (a ``write`` cost 8 µs of the 60 of a request).
``sync`` makes it survive a power cut. A disk is found full when blocks are allocated, never in the middle of a frame.

A full disk is met with a reserve that was allocated beforehand and becomes the next segment: its blocks are ours, so
nobody else can take them in between. When that is full too the worker refuses (or, unmetered, drops and counts).

Whoever holds the ``flock`` of a segment still writes to it; the lock goes with the process, however it dies.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from stoker.base.errors import Driver
from stoker.facts.record import Record

HEADER: Final = struct.Struct("<II")
SUFFIX: Final = ".seg"
MAX_FRAME: Final = 1 << 20  # a record is some hundred bytes; a longer length is a damaged one
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_WINDOWS: Final = (1 << 18, 1 << 16, 1 << 12)  # bytes allocated and mapped at a time; less when the disk is nearly full
_PAGE: Final = mmap.ALLOCATIONGRANULARITY
_MARK: Final = b"\xa4type\xa6record"  # how every payload starts, after one byte (or three) of map header
_HEAD: Final = HEADER.size
_put_head = HEADER.pack_into
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


def frame(record: Record) -> bytes:
    """Write one record as it lies in a segment."""
    payload = _encode(record)
    return HEADER.pack(len(payload), crc32(payload)) + payload


def segment_name(boot: str, number: int) -> str:
    """Name a segment so that names sort in the order of writing."""
    return f"{boot}-{number:06d}{SUFFIX}"


class Spool:
    """The writing end, owned by one worker. ``append`` belongs to one thread, ``sync`` may run in another."""

    def __init__(
        self,
        folder: Path,
        boot: str,
        *,
        segment_bytes: int = 8 << 20,
        reserve_bytes: int = 1 << 20,
        unmetered: bool = False,
    ) -> None:
        self._folder = folder
        self._boot = boot
        self._segment_bytes = segment_bytes
        self._reserve_bytes = reserve_bytes
        self._unmetered = unmetered
        self._lock = threading.Lock()
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._from = self._until = 0  # the part of the segment that is mapped
        self._at = 0
        self._number = 0
        self._synced_name = 0  # number of the newest segment whose directory entry is durable
        self._retired: list[int] = []
        self._unsynced = 0
        self.accounting = "ok"
        self.dropped = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._next_segment()
        except OSError as error:
            raise Driver(f"cannot write the spool in {folder}: {error}") from error
        self._restore()

    @property
    def unsynced(self) -> int:
        """Records that a power cut would lose now."""
        return self._unsynced

    @property
    def position(self) -> tuple[int, int]:
        """Number of the segment, and where the next record goes in it."""
        with self._lock:
            return self._number, self._at

    def append(self, record: Record) -> None:
        """Hand one record to the kernel; raises Driver when disk and reserve are full (never when unmetered)."""
        payload = _encode(record)
        size, mark = len(payload), crc32(payload)
        with self._lock:
            begin = self._at
            end = begin + _HEAD + size
            mapped = self._map
            if mapped is not None and end <= self._until and end <= self._segment_bytes and self.accounting == "ok":
                # The usual way, in one piece. The head comes last: a reader that looks in between sees no frame yet,
                # never one with a wrong checksum.
                at = begin - self._from
                mapped[at + _HEAD : at + _HEAD + size] = payload
                _put_head(mapped, at, size, mark)
                self._at = end
                self._unsynced += 1
                return
            try:
                self._append(HEADER.pack(size, mark) + payload)
            except OSError as error:
                self._give_up(error)

    def sync(self) -> int:
        """Make everything that was appended survive a power cut, and tell how many records that was."""
        with self._lock:
            count = self._unsynced
            retired, self._retired = self._retired, []
            current = os.dup(self._fd) if self._fd >= 0 else -1
            number = self._number
        try:
            for fd in (*retired, current):
                if fd >= 0:
                    os.fdatasync(fd)
            if number != self._synced_name:
                _sync_folder(self._folder)
        except OSError as error:
            raise Driver(f"cannot make the spool in {self._folder} durable: {error}") from error
        finally:
            for fd in (*retired, current):
                if fd >= 0:
                    os.close(fd)
        with self._lock:
            self._synced_name = number
            self._unsynced -= count
            if self.accounting != "ok":
                self._restore()
        return count

    def close(self) -> None:
        """Sync and let go; the ingester may then remove the segments."""
        try:
            self.sync()
        finally:
            with self._lock:
                if self._fd >= 0:
                    self._unmap()
                    os.ftruncate(self._fd, self._at)
                    os.close(self._fd)
                    self._fd = -1
                self._reserve_path.unlink(missing_ok=True)

    @property
    def _reserve_path(self) -> Path:
        return self._folder / f"{self._boot}.reserve"

    def _append(self, data: bytes) -> None:
        try:
            if self._at and self._at + len(data) > self._segment_bytes:
                self._next_segment()
            self._write(data)
        except OSError as error:
            if error.errno not in FULL or not self._use_reserve():
                raise
            self._write(data)
        self._unsynced += 1
        if self.accounting in ("refusing", "unmetered"):
            self.accounting = "reserve"  # there is room again; sync() says when the reserve is back too

    def _write(self, data: bytes) -> None:
        end = self._at + len(data)
        if end > self._until:
            self._extend(len(data))
        mapped, at = self._map, self._at - self._from
        if mapped is None:
            raise OSError(errno.EBADF, "the spool is closed")
        # The head last, as in append.
        mapped[at + HEADER.size : at + len(data)] = data[HEADER.size :]
        mapped[at : at + HEADER.size] = data[: HEADER.size]
        self._at = end

    def _extend(self, need: int) -> None:
        """Allocate and map the next part of the segment; raises OSError when there is no room for ``need`` bytes."""
        start = self._at // _PAGE * _PAGE
        least = -(-(self._at - start + need) // _PAGE) * _PAGE
        for size in sorted({max(window, least) for window in _WINDOWS}, reverse=True):
            try:
                os.posix_fallocate(self._fd, start, size)
            except OSError as error:
                if size == least or error.errno not in FULL:
                    raise
                continue
            self._unmap()
            self._map = mmap.mmap(self._fd, size, offset=start)
            self._from, self._until = start, start + size
            return

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        self._from = self._until = 0

    def _next_segment(self) -> None:
        path = self._folder / segment_name(self._boot, self._number + 1)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._take(fd)

    def _use_reserve(self) -> bool:
        """Turn the reserve into the next segment; its blocks are allocated, so writing it cannot fail for space."""
        try:
            fd = os.open(self._reserve_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._reserve_path.rename(self._folder / segment_name(self._boot, self._number + 1))
        self._take(fd)
        self.accounting = "reserve"
        return True

    def _take(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        self._unmap()
        if self._fd >= 0:
            os.ftruncate(self._fd, self._at)
            self._retired.append(self._fd)
        self._fd, self._at = fd, 0
        self._number += 1

    def _restore(self) -> None:
        """Allocate the reserve again; only then is accounting safe against the next full disk."""
        if self._reserve_path.exists():
            self.accounting = "ok"
            return
        fresh = self._folder / f"{self._boot}.reserve.new"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._reserve_bytes)
            finally:
                os.close(fd)
            fresh.rename(self._reserve_path)
        except OSError:  # still full: we stay in the state that `accounting` tells
            with contextlib.suppress(OSError):
                fresh.unlink()
            if self.accounting == "ok":
                self.accounting = "reserve"
            return
        self.accounting = "ok"

    def _give_up(self, error: OSError) -> None:
        if self._unmetered and error.errno in FULL:
            self.accounting = "unmetered"
            self.dropped += 1
            return
        self.accounting = "refusing"
        raise Driver(f"accounting is unavailable: cannot write the spool in {self._folder}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What was read. ``torn``: the tail is half a frame; ``corrupt`` tells of damage in the middle, at next_offset."""

    records: tuple[Record, ...]
    next_offset: int
    torn: bool = False
    corrupt: str = ""
    resume_offset: int = 0  # where the next good frame starts after damage; the end of the file when there is none


def read(path: Path, offset: int = 0, *, limit: int = 500) -> Batch:
    """Read up to ``limit`` records of a segment from ``offset``; raises Driver when the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except OSError as error:
        raise Driver(f"cannot read the spool segment {path}: {error}") from error
    records: list[Record] = []
    at = 0
    while len(records) < limit and at < len(data):
        record, size = _frame_at(data, at)
        if record is None:
            return _stopped(data, at, offset, records)
        records.append(record)
        at += size
    return Batch(records=tuple(records), next_offset=offset + at)


def closed(path: Path) -> bool:
    """Tell whether no process writes to this segment any more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _frame_at(data: bytes, at: int) -> tuple[Record | None, int]:
    if at < 0 or at + HEADER.size > len(data):
        return None, 0
    size, crc = HEADER.unpack_from(data, at)
    end = at + HEADER.size + size
    if not 0 < size <= MAX_FRAME or end > len(data):
        return None, 0
    payload = data[at + HEADER.size : end]
    if crc32(payload) != crc:
        return None, 0
    try:
        return _decode(payload), end - at
    except msgspec.MsgspecError:  # a good checksum over a record that we cannot read: a newer version wrote it
        return None, 0


def _stopped(data: bytes, at: int, offset: int, records: list[Record]) -> Batch:
    """Tell a clean end (zeros of the reserve), a torn tail and damage in the middle apart."""
    rest = data[at:]
    if not rest.strip(b"\0"):
        return Batch(records=tuple(records), next_offset=offset + at)
    following = _next_good(data, at + 1)
    if following is None and _reaches_past(rest):
        return Batch(records=tuple(records), next_offset=offset + at, torn=True)
    resume = len(data) if following is None else following
    message = f"bytes {offset + at} to {offset + resume} hold no readable record"
    return Batch(records=tuple(records), next_offset=offset + at, corrupt=message, resume_offset=offset + resume)


def _reaches_past(rest: bytes) -> bool:
    """Is this the beginning of a frame whose end was never written? Zeros may lie where the end should be."""
    if len(rest) < HEADER.size:
        return True
    size, _ = HEADER.unpack_from(rest)
    if not size:
        return True  # the payload lies there, its head was not written any more
    return bool(size <= MAX_FRAME and len(rest.rstrip(b"\0")) < HEADER.size + size)


def _next_good(data: bytes, start: int) -> int | None:
    """Find the next frame that is whole, by the mark that every payload carries near its start."""
    mark = data.find(_MARK, start)
    while mark >= 0:
        for head in (1, 3):  # fixmap, map16
            at = mark - head - HEADER.size
            if at >= start and _frame_at(data, at)[0] is not None:
                return at
        mark = data.find(_MARK, mark + 1)
    return None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
