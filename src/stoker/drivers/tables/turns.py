"""Which turn of an agent runs where, over all workers of this machine? Who claims it last has it."""

import itertools
import struct
from pathlib import Path
from typing import Final

from stoker.drivers.tables.mapped import Mapped

_ENTRY: Final = struct.Struct("<qq")  # worker, number


class Turns:
    """Claims on turns. A claim that another worker has overwritten is lost: whoever held it is to give up."""

    def __init__(self, path: Path, worker: int) -> None:
        self._table = Mapped(path, _ENTRY)
        self._worker = worker
        self._numbers = itertools.count(1)

    def claim(self, mark: bytes) -> int:
        """Claim a turn, whoever has it; gives the number of the claim."""
        number = next(self._numbers)
        self._table.put(mark, self._worker, number)
        return number

    def lost(self, mark: bytes, number: int) -> bool:
        """Whether somebody else has claimed the same turn since."""
        held = self._table.get(mark)
        return held is not None and held != (self._worker, number)

    def release(self, mark: bytes, number: int) -> None:
        """Give a claim up, unless it was lost."""
        if self._table.get(mark) == (self._worker, number):
            self._table.drop(mark)

    def close(self) -> None:
        """Unmap."""
        self._table.close()
