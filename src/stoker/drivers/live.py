"""What does a worker say about itself, so that it can be read after the worker was killed?

A mapped file: two buffers for the state of the last second, written in turn (length, CRC, sequence; the reader takes
the newest whole one), and a row for every request in flight, written when it begins and cleared when its record lies in
the spool. A request is thus at every moment in the spool, in a row, or in both; never in neither.
"""

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Driver
from stoker.facts.live import InFlight, Live

_MAGIC: Final = b"stokliv1"
_BUFFER_HEAD: Final = struct.Struct("<QII")  # sequence, length, crc
_BUFFER: Final = 1 << 20
_ROW_HEAD: Final = struct.Struct("<II")  # length, crc
_ROW: Final = 512
_EMPTY: Final = bytes(_ROW_HEAD.size)
_USED: Final = struct.Struct("<I")  # how many rows were ever used, so that a reader need not look at the others
_USED_AT: Final = 16
_FIRST: Final = 4096
_ROWS_AT: Final = _FIRST + 2 * _BUFFER
ROWS: Final = 32768
_SIZE: Final = _ROWS_AT + ROWS * _ROW

_encode = msgspec.msgpack.Encoder().encode
_read_live = msgspec.msgpack.Decoder(Live).decode
_read_row = msgspec.msgpack.Decoder(InFlight).decode


class Slot:
    """The writing end; one worker owns it."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # a reader of the dead predecessor keeps what it has open
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, _SIZE)
                self._map = mmap.mmap(fd, _SIZE)
            finally:
                os.close(fd)
        except OSError as error:
            raise Driver(f"cannot map the live slot {path}: {error}") from error
        self._map[: len(_MAGIC)] = _MAGIC
        self._sequence = 0
        self._free: list[int] = []
        self._used = 0

    def write(self, live: Live) -> None:
        """Publish a state. Its requests in flight are taken from the rows, not from here."""
        data = _encode(msgspec.structs.replace(live, in_flight=()))
        if len(data) > _BUFFER - _BUFFER_HEAD.size:
            raise Driver(f"the live state has {len(data)} bytes, more than its slot")
        self._sequence += 1
        at = _FIRST + self._sequence % 2 * _BUFFER
        self._map[at + _BUFFER_HEAD.size : at + _BUFFER_HEAD.size + len(data)] = data
        _BUFFER_HEAD.pack_into(self._map, at, self._sequence, len(data), zlib.crc32(data))

    def begin(self, request: InFlight) -> int:
        """Note a request in flight; gives its row, or -1 when there are more requests than rows."""
        if self._free:
            row = self._free.pop()
        elif self._used < ROWS:
            row = self._used
            self._used += 1
            _USED.pack_into(self._map, _USED_AT, self._used)
        else:
            return -1
        data = _encode(request)
        if len(data) > _ROW - _ROW_HEAD.size:  # absurdly long names: keep what identifies the request
            data = _encode(InFlight(id=request.id, at=request.at, caller=request.caller[:128]))
        at = _ROWS_AT + row * _ROW
        self._map[at : at + _ROW_HEAD.size + len(data)] = _ROW_HEAD.pack(len(data), zlib.crc32(data)) + data
        return row

    def end(self, row: int) -> None:
        """Clear a row, after the request's record was written."""
        if row >= 0:
            at = _ROWS_AT + row * _ROW
            self._map[at : at + _ROW_HEAD.size] = _EMPTY
            self._free.append(row)

    def close(self) -> None:
        """Unmap; the file stays for readers."""
        self._map.close()


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
        if sequence and zlib.crc32(data) == crc:
            found.append((sequence, data))
    return _read_live(max(found)[1]) if found else None


def _rows(mapped: mmap.mmap) -> tuple[InFlight, ...]:
    requests = []
    (used,) = _USED.unpack_from(mapped, _USED_AT)
    for row in range(min(used, ROWS)):
        at = _ROWS_AT + row * _ROW
        length, crc = _ROW_HEAD.unpack_from(mapped, at)
        data = mapped[at + _ROW_HEAD.size : at + _ROW_HEAD.size + min(length, _ROW)]
        if length and zlib.crc32(data) == crc:
            requests.append(_read_row(data))
    return tuple(requests)
