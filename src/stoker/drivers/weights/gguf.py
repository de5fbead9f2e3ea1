"""Read the header of a GGUF file: its keys and how many bytes its tensors take. Small reads, only short arrays kept."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO, Final, NoReturn, TypeAlias

from stoker.base.errors import Fault, Invalid
from stoker.predict.roles import Tensor

Value: TypeAlias = int | float | bool | str

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_LONGEST: Final = 64 << 20  # a longer string is a damaged length
_SHORT: Final = 1024  # an array with a number for each layer is kept, a vocabulary is not

# Values a block and bytes a block, by tensor type.
_BLOCKS: Final = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
_PLAIN: Final = {0: "F32", 1: "F16", 30: "BF16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The keys without their arrays, and the tensors' size in the file."""

    keys: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    tensor_bytes: int
    arrays: Mapping[str, tuple[int, ...]]  # short ones of whole numbers


def read(path: Path) -> Header:
    """Read one file's header; raises Invalid when it is no GGUF file or is shorter than its header says."""
    with path.open("rb") as file:
        return parse(file, where=str(path), size=path.stat().st_size)


def parse(file: BinaryIO, *, where: str, size: int) -> Header:
    """Read a header; ``size`` is that of the whole file, of which only the beginning need be there."""
    reader = _Reader(file, where, size)
    if file.read(4) != b"GGUF":
        reader.refuse("this is no GGUF file")
    version = reader.number("I")
    if version not in (2, 3):
        reader.refuse(f"GGUF version {version} is not known (2 and 3 are)")
    tensors, keys = reader.number("Q"), reader.number("Q")
    described = dict(found for _ in range(keys) if (found := reader.pair()) is not None)
    placed = [reader.tensor() for _ in range(tensors)]
    alignment = described.get("general.alignment", 32)
    step = alignment if isinstance(alignment, int) and alignment > 0 else 32
    start = -(-file.tell() // step) * step
    end = start + max((offset + tensor.size_bytes for offset, tensor in placed), default=0)
    if size < end:
        reader.refuse(f"the file has {size} bytes and its header speaks of {end}", hint="fetch it again")
    return Header(
        keys=described,
        tensors=tuple(tensor for _, tensor in placed),
        tensor_bytes=sum(tensor.size_bytes for _, tensor in placed),
        arrays=reader.arrays,
    )


class _Reader:
    """A file position with the shapes of the format."""

    def __init__(self, file: BinaryIO, where: str, size: int) -> None:
        self.file = file
        self.where = where
        self.size = size
        self.arrays: dict[str, tuple[int, ...]] = {}

    def refuse(self, message: str, *, hint: str = "") -> NoReturn:
        """Say what is wrong with this file."""
        raise Invalid(Fault(message=message, file=self.where, hint=hint))

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
        """Read a key and its value; a long array is passed over."""
        key, kind = self.text(), self.number("I")
        if kind == _ARRAY:
            self._array(key)
            return None
        if kind == _STRING:
            return key, self.text()
        if kind not in _SCALARS:
            self.refuse(f"the header is damaged: value type {kind}")
        code = f"<{_SCALARS[kind]}"
        (value,) = struct.unpack(code, self._take(struct.calcsize(code)))
        return key, value

    def tensor(self) -> tuple[int, Tensor]:
        """Read one tensor's description: where its data starts, and what it is."""
        name = self.text()
        dimensions = self.number("I")
        if dimensions > 8:
            self.refuse("the header is damaged: a tensor of impossible shape")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        kind, offset = self.number("I"), self.number("Q")
        if kind not in _BLOCKS:
            self.refuse(f"tensor type {kind} is not known here", hint="upgrade Stoker, or take another quantisation")
        block, size = _BLOCKS[kind]
        dtype = _PLAIN.get(kind, f"ggml {kind}")
        return offset, Tensor(name=name, dtype=dtype, shape=shape, size_bytes=prod(shape) // block * size)

    def _array(self, key: str) -> None:
        kind, count = self.number("I"), self.number("Q")
        if kind in _SCALARS and count <= _SHORT and _SCALARS[kind] not in "fd":
            self.arrays[key] = tuple(self.number(_SCALARS[kind]) for _ in range(count))
        elif kind in _SCALARS:
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
