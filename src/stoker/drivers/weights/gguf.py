"""Read the header of a GGUF file: its keys and how many bytes its tensors take. Small reads, no arrays kept."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn, TypeAlias

from stoker.base.errors import Fault, Invalid

Value: TypeAlias = int | float | bool | str

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_LONGEST: Final = 64 << 20  # a longer string is a damaged length

# Values a block and bytes a block, by tensor type.
_BLOCKS: Final = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The keys without their arrays, and the tensors' size in the file."""

    keys: Mapping[str, Value]
    tensors: int
    tensor_bytes: int


def read(path: Path) -> Header:
    """Read one file's header; raises Invalid when it is no GGUF file or is shorter than its header says."""
    with path.open("rb") as file:
        reader = _Reader(file, path)
        if file.read(4) != b"GGUF":
            reader.refuse("this is no GGUF file")
        version = reader.number("I")
        if version not in (2, 3):
            reader.refuse(f"GGUF version {version} is not known (2 and 3 are)")
        tensors, keys = reader.number("Q"), reader.number("Q")
        described = dict(found for _ in range(keys) if (found := reader.pair()) is not None)
        sizes = [reader.tensor() for _ in range(tensors)]
        alignment = described.get("general.alignment", 32)
        step = alignment if isinstance(alignment, int) and alignment > 0 else 32
        start = -(-file.tell() // step) * step
        end = start + max((offset + size for offset, size in sizes), default=0)
        if reader.size < end:
            reader.refuse(f"the file has {reader.size} bytes and its header speaks of {end}", hint="fetch it again")
        return Header(keys=described, tensors=tensors, tensor_bytes=sum(size for _, size in sizes))


class _Reader:
    """A file position with the shapes of the format."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.size = path.stat().st_size

    def refuse(self, message: str, *, hint: str = "") -> NoReturn:
        """Say what is wrong with this file."""
        raise Invalid(Fault(message=message, file=str(self.path), hint=hint))

    def number(self, code: str) -> int:
        """Read one number of a struct code."""
        (value,) = struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))
        return int(value)

    def text(self) -> str:
        """Read one string."""
        length = self.number("Q")
        if length > _LONGEST:
            self.refuse("the header is damaged: a string of impossible length")
        return self._take(length).decode(errors="replace")

    def pair(self) -> tuple[str, Value] | None:
        """Read a key and its value; an array is passed over."""
        key, kind = self.text(), self.number("I")
        if kind == _ARRAY:
            self._pass_array()
            return None
        if kind == _STRING:
            return key, self.text()
        if kind not in _SCALARS:
            self.refuse(f"the header is damaged: value type {kind}")
        code = f"<{_SCALARS[kind]}"
        (value,) = struct.unpack(code, self._take(struct.calcsize(code)))
        return key, value

    def tensor(self) -> tuple[int, int]:
        """Read one tensor's description: where its data starts and how long it is."""
        self.text()
        dimensions = self.number("I")
        if dimensions > 8:
            self.refuse("the header is damaged: a tensor of impossible shape")
        values = 1
        for _ in range(dimensions):
            values *= self.number("Q")
        kind, offset = self.number("I"), self.number("Q")
        if kind not in _BLOCKS:
            self.refuse(f"tensor type {kind} is not known here", hint="upgrade Stoker, or take another quantisation")
        block, size = _BLOCKS[kind]
        return offset, values // block * size

    def _pass_array(self) -> None:
        kind, count = self.number("I"), self.number("Q")
        if kind in _SCALARS:
            self.file.seek(count * struct.calcsize(f"<{_SCALARS[kind]}"), 1)
        elif kind == _STRING:
            for _ in range(count):
                self.file.seek(self.number("Q"), 1)
        else:
            self.refuse("the header is damaged: an array of arrays")

    def _take(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            self.refuse("the header is cut off", hint="fetch it again")
        return data
