"""What is left of each service's budget of retries, over all workers of this machine?"""

import struct
from pathlib import Path
from typing import Final

from stoker.decide.again.budget import Bucket, spend
from stoker.drivers.slots import Rows

_ROW: Final = struct.Struct("<dd")  # retries, at


class Retries:
    """Budgets by service."""

    def __init__(self, path: Path) -> None:
        self._rows = Rows(path, row_bytes=_ROW.size)

    def spend(self, service: str, *, requests: int, now: float) -> bool:
        """Take one retry; ``requests`` have come to this worker since it last asked."""
        rows = self._rows
        at = rows.row(service)
        rows.lock(at, _ROW.size)
        try:
            retries, when = _ROW.unpack_from(rows.map, at)
            bucket = Bucket(retries, when) if when else Bucket()
            granted, left = spend(bucket, requests=requests, now=now)
            _ROW.pack_into(rows.map, at, left.retries, left.at)
        finally:
            rows.unlock(at, _ROW.size)
        return granted

    def close(self) -> None:
        """Unmap."""
        self._rows.close()
