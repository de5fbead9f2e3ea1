"""What does a worker say about itself, so that it can be read after the worker was killed?

A mapped file: two buffers for the state of the last second, written in turn (length, CRC, sequence; the reader takes
the newest whole one), and a row for every request in flight, written when it begins and cleared when its record lies in
the spool. A request is thus at every moment in the spool, in a row, or in both; never in neither.

The file is sparse, and what is touched was allocated before: on a full disk a hole would kill the worker by SIGBUS,
on tmpfs its readers too. What 1,000 requests at once need is taken at the start, more when it is needed. A worker that
starts on a full disk keeps all this in memory until there is room.
"""

import errno
import mmap
import os
import struct
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from stoker.base.errors import Driver
from stoker.facts.live import InFlight, Live

_MAGIC: Final = b"stokliv1"
_BUFFER_HEAD: Final = struct.Struct("<QII")  # sequence, length, crc
_BUFFER: Final = 1 << 20
_ROW_HEAD: Final = struct.Struct("<II")  # length, crc
_ROW: Final = 512
_HEAD: Final = _ROW_HEAD.size
_pack_head = _ROW_HEAD.pack
_EMPTY: Final = bytes(_HEAD)
_MOST: Final = _ROW - _HEAD
_USED: Final = struct.Struct("<I")  # how many rows were ever used, so that a reader need not look at the others
_USED_AT: Final = 16
_FIRST: Final = 4096
_ROWS: Final = 2  # after the two buffers
_ROWS_AT: Final = _FIRST + _ROWS * _BUFFER
ROWS: Final = 32768
_SIZE: Final = _ROWS_AT + ROWS * _ROW
_PART: Final = 1 << 16  # bytes that are allocated at once
_AT_START: Final = 1024 * _ROW
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_encode = msgspec.msgpack.Encoder().encode
_read_live = msgspec.msgpack.Decoder(Live).decode
_read_row = msgspec.msgpack.Decoder(InFlight).decode


class Slot:
    """The writing end; one worker owns it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = [0, 0, 0]  # how much is allocated: of each buffer, of the rows
        self._sequence = 0
        self._free: list[int] = []
        self._used = 0
        try:
            self._fd, self._map = self._create()
        except OSError as error:
            if error.errno not in _FULL:
                raise Driver(f"cannot map the live slot {path}: {error}") from error
            # A worker that is killed on a full disk must come back, or nobody says why nothing is answered. Until there
            # is room it keeps its notes to itself, and `write` tries again.
            self._fd, self._map = -1, mmap.mmap(-1, _SIZE)

    def _create(self) -> tuple[int, mmap.mmap]:
        """Make the file with what a thousand requests need. Raises OSError."""
        path = self._path
        part = path.with_name(f".{path.name}.part")  # a reader never meets a slot that is only half there
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, _SIZE)
            own = (_PART, _PART, max(_AT_START, _whole(self._used * _ROW)))
            for what, size in enumerate(own):
                os.posix_fallocate(fd, _FIRST + what * _BUFFER, size)
            os.posix_fallocate(fd, 0, _FIRST)
            mapped = mmap.mmap(fd, _SIZE)
            mapped[: len(_MAGIC)] = _MAGIC
            part.replace(path)  # a reader of the dead predecessor keeps what it has open
        except OSError:
            os.close(fd)
            part.unlink(missing_ok=True)
            raise
        self._own = list(own)
        return fd, mapped

    def _settle(self) -> None:
        """Move from memory into a file, now that there may be room. Raises OSError."""
        fd, mapped = self._create()
        rows = self._used * _ROW
        mapped[_ROWS_AT : _ROWS_AT + rows] = self._map[_ROWS_AT : _ROWS_AT + rows]
        _USED.pack_into(mapped, _USED_AT, self._used)
        self._map.close()
        self._fd, self._map = fd, mapped

    def write(self, live: Live) -> None:
        """Publish a state; its requests in flight are taken from the rows, not from here. Raises Driver."""
        data = _encode(msgspec.structs.replace(live, in_flight=()))
        if len(data) > _BUFFER - _BUFFER_HEAD.size:
            raise Driver(f"the live state has {len(data)} bytes, more than its slot")
        which = (self._sequence + 1) % 2
        try:
            if self._fd < 0:
                self._settle()
            self._allocate(which, _BUFFER_HEAD.size + len(data))
        except OSError as error:
            raise Driver(f"the live state cannot be written: {error.strerror}") from error
        self._sequence += 1
        at = _FIRST + which * _BUFFER
        self._map[at + _BUFFER_HEAD.size : at + _BUFFER_HEAD.size + len(data)] = data
        _BUFFER_HEAD.pack_into(self._map, at, self._sequence, len(data), crc32(data))

    def begin(self, request: InFlight) -> int:
        """Note a request in flight; gives its row, or -1 when there is no row left."""
        if self._free:
            row = self._free.pop()
        elif self._used < ROWS and self._room():
            row = self._used
            self._used += 1
            _USED.pack_into(self._map, _USED_AT, self._used)
        else:
            return -1
        data = _encode(request)
        size = len(data)
        if size > _MOST:  # absurdly long names: keep what identifies the request
            data = _encode(InFlight(id=request.id, at=request.at, caller=request.caller[:128]))
            size = len(data)
        at = _ROWS_AT + row * _ROW
        self._map[at : at + _HEAD + size] = _pack_head(size, crc32(data)) + data
        return row

    def end(self, row: int) -> None:
        """Clear a row, after the request's record was written."""
        if row >= 0:
            at = _ROWS_AT + row * _ROW
            self._map[at : at + _HEAD] = _EMPTY
            self._free.append(row)

    def close(self) -> None:
        """Unmap; the file stays for readers."""
        self._map.close()
        if self._fd >= 0:
            os.close(self._fd)

    def _room(self) -> bool:
        """Tell whether one more row may be used."""
        try:
            self._allocate(_ROWS, (self._used + 1) * _ROW)
        except OSError:  # the disk is full: the request is served, but a kill -9 now would not name it
            return False
        return True

    def _allocate(self, what: int, size: int) -> None:
        """Own at least ``size`` bytes of a buffer or of the rows. Raises OSError when the disk has no room."""
        if size > self._own[what] and self._fd >= 0:
            whole = _whole(size)
            os.posix_fallocate(self._fd, _FIRST + what * _BUFFER, whole)
            self._own[what] = whole


def _whole(size: int) -> int:
    """Round up to what is allocated at once."""
    return -(-size // _PART) * _PART


def read(path: Path) -> Live | None:
    """Read the newest whole state and the requests in flight, also of a dead worker; None when there is none yet."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            if mapped[: len(_MAGIC)] != _MAGIC or len(mapped) < _SIZE:
                return None
            live = _newest(mapped)
            return None if live is None else msgspec.structs.replace(live, in_flight=_rows(mapped))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Driver(f"cannot read the live slot {path}: {error}") from error


def _newest(mapped: mmap.mmap) -> Live | None:
    found: list[tuple[int, bytes]] = []
    for at in (_FIRST, _FIRST + _BUFFER):
        sequence, length, crc = _BUFFER_HEAD.unpack_from(mapped, at)
        data = mapped[at + _BUFFER_HEAD.size : at + _BUFFER_HEAD.size + min(length, _BUFFER)]
        if sequence and crc32(data) == crc:
            found.append((sequence, data))
    return _read_live(max(found)[1]) if found else None


def _rows(mapped: mmap.mmap) -> tuple[InFlight, ...]:
    requests = []
    (used,) = _USED.unpack_from(mapped, _USED_AT)
    for row in range(min(used, ROWS)):
        at = _ROWS_AT + row * _ROW
        length, crc = _ROW_HEAD.unpack_from(mapped, at)
        data = mapped[at + _ROW_HEAD.size : at + _ROW_HEAD.size + min(length, _ROW)]
        if length and crc32(data) == crc:
            requests.append(_read_row(data))
    return tuple(requests)
