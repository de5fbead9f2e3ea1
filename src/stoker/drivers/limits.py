"""May this caller ask once more? Requests and tokens per minute, tokens per day, requests at once; over all workers.

Rates are buckets that refill steadily (a full one holds a minute's worth), so nobody gains by waiting for a minute to
turn. Tokens are reserved by an estimate and settled by what was used: a bucket may go below nothing, and then the
next request waits for it. The day's tokens are counted by UTC days. The interface is the same for a store across
machines: ``reserve`` answers with a grant or with the limit that said no, and ``settle`` is called exactly once for
each grant.
"""

import struct
from pathlib import Path
from typing import Final, Protocol

import msgspec

from stoker.drivers.slots import WORKERS, Rows
from stoker.facts.routes import Limits

_DAY: Final = 86400
_ROW: Final = struct.Struct(f"<dddqqq{WORKERS}i")  # requests, tokens, at, day, day's tokens, unused; requests at once


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Which limit said no, what it is, and in how many seconds it may say yes (0: unknown)."""

    limit: str
    allowed: int
    retry_after: float = 0.0


class CallerLimits(Protocol):
    """What a gateway asks of the shared limits."""

    def reserve(self, caller: str, limits: Limits, *, tokens: int, now: float) -> Refusal | None:
        """Take one request and an estimate of its tokens, or say which limit refuses; nothing is taken then."""

    def settle(self, caller: str, limits: Limits, *, reserved: int, used: int, now: float) -> None:
        """End one request that was let in: what it used takes the place of what was reserved."""


class SharedLimits:
    """Caller limits in a file that all workers of a machine map."""

    def __init__(self, path: Path, worker: int) -> None:
        self._table = Rows(path, row_bytes=_ROW.size)
        self._worker = worker
        self.forget(worker)

    def reserve(self, caller: str, limits: Limits, *, tokens: int, now: float) -> Refusal | None:
        """Take one request and an estimate of its tokens, or say which limit refuses; nothing is taken then."""
        table = self._table
        at = table.row(caller)
        table.lock(at, _ROW.size)
        try:
            requests, bucket, day, spent, counts = self._read(at, limits, now)
            refusal = _refuse(limits, requests, bucket, spent, sum(counts), now)
            if refusal is not None:
                return refusal
            counts[self._worker] += 1
            _ROW.pack_into(table.map, at, requests - 1, bucket - tokens, now, day, spent + tokens, 0, *counts)
        finally:
            table.unlock(at, _ROW.size)
        return None

    def settle(self, caller: str, limits: Limits, *, reserved: int, used: int, now: float) -> None:
        """End one request that was let in: what it used takes the place of what was reserved."""
        table = self._table
        at = table.row(caller)
        table.lock(at, _ROW.size)
        try:
            requests, bucket, day, spent, counts = self._read(at, limits, now)
            counts[self._worker] = max(0, counts[self._worker] - 1)
            more = used - reserved
            _ROW.pack_into(table.map, at, requests, bucket - more, now, day, max(0, spent + more), 0, *counts)
        finally:
            table.unlock(at, _ROW.size)

    def _read(self, at: int, limits: Limits, now: float) -> tuple[float, float, int, int, list[int]]:
        requests, bucket, then, day, spent, _, *counts = _ROW.unpack_from(self._table.map, at)
        if not then:  # a row that nobody has used: its buckets are full
            requests, bucket = float(limits.requests_per_minute), float(limits.tokens_per_minute)
        passed = max(0.0, now - then) / 60
        requests = min(limits.requests_per_minute, requests + passed * limits.requests_per_minute)
        bucket = min(limits.tokens_per_minute, bucket + passed * limits.tokens_per_minute)
        today = int(now // _DAY)
        return requests, bucket, today, spent if day == today else 0, counts

    def forget(self, worker: int) -> None:
        """Free the requests at once that a dead worker held."""
        column = _ROW.size - 4 * (WORKERS - worker)
        for at in self._table.positions():
            struct.pack_into("<i", self._table.map, at + column, 0)

    def close(self) -> None:
        """Unmap."""
        self._table.close()


def _refuse(limits: Limits, requests: float, bucket: float, spent: int, running: int, now: float) -> Refusal | None:
    if limits.concurrent and running >= limits.concurrent:
        return Refusal(limit="concurrent", allowed=limits.concurrent, retry_after=1.0)
    if limits.requests_per_minute and requests < 1:
        wait = (1 - requests) * 60 / limits.requests_per_minute
        return Refusal(limit="requests_per_minute", allowed=limits.requests_per_minute, retry_after=wait)
    if limits.tokens_per_minute and bucket <= 0:
        wait = (1 - bucket) * 60 / limits.tokens_per_minute
        return Refusal(limit="tokens_per_minute", allowed=limits.tokens_per_minute, retry_after=wait)
    if limits.tokens_per_day and spent >= limits.tokens_per_day:
        return Refusal(limit="tokens_per_day", allowed=limits.tokens_per_day, retry_after=_DAY - now % _DAY)
    return None
