"""Which requests were there when an engine died, over all workers of this machine?"""

import struct
from pathlib import Path
from typing import Final

from stoker.decide.again.poison import FORGET_SECONDS
from stoker.drivers.tables.mapped import Mapped

_ENTRY: Final = struct.Struct("<dd")  # strikes, at
_LAST: Final = struct.Struct("<d")  # in the head: when anybody was struck last


class Strikes:
    """Strikes by the mark of a request."""

    def __init__(self, path: Path) -> None:
        self._table = Mapped(path, _ENTRY)

    def any(self, now: float) -> bool:
        """Whether any request is under suspicion: mostly none is, and then nobody makes marks."""
        return now - float(_LAST.unpack_from(self._table.map, 0)[0]) < FORGET_SECONDS

    def of(self, mark: bytes) -> tuple[int, float]:
        """Say how often a request was there, and when last."""
        strikes, at = self._table.get(mark) or (0.0, 0.0)
        return int(strikes), at

    def strike(self, mark: bytes, now: float) -> None:
        """Note that a request was there."""
        table = self._table
        table.lock(mark)
        try:
            strikes, at = self.of(mark)
            table.put(mark, (strikes if now - at < FORGET_SECONDS else 0) + 1, now)
            _LAST.pack_into(table.map, 0, now)
        finally:
            table.unlock(mark)

    def clear(self, mark: bytes) -> None:
        """Free a request that was answered after all."""
        self._table.drop(mark)

    def close(self) -> None:
        """Unmap."""
        self._table.close()
