"""Read the header of a safetensors file: its tensors, how they are stored and how many bytes they take."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.predict.roles import Tensor

PREFIX: Final = 8  # bytes that say how long the header is
_LIMIT: Final = 100 << 20  # the format's own limit


class _Entry(msgspec.Struct, frozen=True, gc=False):
    data_offsets: tuple[int, int] = (0, -1)  # what has none is damaged, or the metadata
    dtype: str = ""
    shape: tuple[int, ...] = ()


_decode: Final = msgspec.json.Decoder(dict[str, _Entry]).decode


def read(path: Path) -> Sequence[Tensor]:
    """Read the header of one file, which must be as long as its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = header_length(file.read(PREFIX), where=str(path), size=size)
        return parse(file.read(length), where=str(path), size=size)


def header_length(prefix: bytes, *, where: str, size: int) -> int:
    """How many bytes of header follow the first eight; raises Invalid for what cannot be."""
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == PREFIX else 0
    if not 0 < length <= min(_LIMIT, size - PREFIX):
        raise _invalid(where, "the header is cut off or this is no safetensors file", hint="fetch the model again")
    return int(length)


def parse(header: bytes, *, where: str, size: int) -> Sequence[Tensor]:
    """Read the header's text; ``size`` is that of the whole file."""
    try:
        found = _plain(header)
    except msgspec.MsgspecError as error:
        raise _invalid(where, f"the header cannot be read: {error}") from error
    for name, entry in found.items():
        first, last = entry.data_offsets
        if first < 0 or last < first:
            raise _invalid(where, f"the header is damaged: {name} has a negative size", hint="fetch it again")
    end = max((entry.data_offsets[1] for entry in found.values()), default=0)
    if PREFIX + len(header) + end > size:
        whole = PREFIX + len(header) + end
        raise _invalid(where, f"the file has {size} bytes and its header speaks of {whole}", hint="fetch it again")
    return [
        Tensor(name=name, dtype=e.dtype, shape=e.shape, size_bytes=e.data_offsets[1] - e.data_offsets[0])
        for name, e in found.items()
    ]


def _plain(header: bytes) -> dict[str, _Entry]:
    """All entries but the metadata, whose fields are words of the maker's choice."""
    try:
        found = _decode(header)
    except msgspec.ValidationError:  # the metadata has a word that looks like a field of ours
        entries = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        entries.pop("__metadata__", None)
        return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in entries.items()}
    found.pop("__metadata__", None)
    return found


def _invalid(where: str, message: str, *, hint: str = "") -> Invalid:
    return Invalid(Fault(message=message, file=where, hint=hint))
