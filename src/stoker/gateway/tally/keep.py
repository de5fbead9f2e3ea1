"""How do counters outlive their worker? Its successor under the same number goes on where it stopped.

1. What was shown is kept before it is shown: a counter that ever goes down looks like a restart, and whoever computes
   rates from it adds everything that was counted before once more.
2. What was counted after that is found in the dead worker's spool, from the place that was kept with the counters.
3. After a start of the machine counting begins at zero: the file may be older than what was shown.
"""

import logging
from pathlib import Path
from typing import Final, Protocol

import msgspec

from stoker.base.errors import Driver
from stoker.drivers import spool
from stoker.drivers.hosts import processes
from stoker.gateway.meter import BUCKETS, Histogram, Meter, Series

_log = logging.getLogger("gateway.tally")
_PARTS: Final = ("duration", "first_token", "gap", "queue")


class Position(Protocol):
    """The spool, as far as it matters here."""

    @property
    def position(self) -> tuple[int, int]:
        """Number of the segment, and where the next record goes in it."""


class _Sums(msgspec.Struct, frozen=True):
    counts: list[int]
    total: float


class _Kept(msgspec.Struct, frozen=True):
    machine: str  # this start of the machine
    worker: str  # boot of the worker that counted
    segment: int
    offset: int
    written: int
    unwritten: int
    requests: list[tuple[str, str, str, int, int]]
    tokens: dict[str, list[int]]
    series: dict[str, dict[str, _Sums]]


class Tally:
    """The file of one worker number."""

    def __init__(self, path: Path, meter: Meter, place: Position, boot: str) -> None:
        self._path = path
        self._meter = meter
        self._place = place
        self._boot = boot
        self._machine = processes.boot_id()
        self._failed = False

    def keep(self) -> None:
        """Write what is counted. Neither synced nor in a thread: it must lie in the kernel before it is shown."""
        meter = self._meter
        segment, offset = self._place.position
        kept = _Kept(
            machine=self._machine,
            worker=self._boot,
            segment=segment,
            offset=offset,
            written=meter.written,
            unwritten=meter.unwritten,
            requests=[(*key, count) for key, count in meter.requests.items()],
            tokens=meter.tokens,
            series={name: _sums(series) for name, series in meter.series.items()},
        )
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.msgpack.encode(kept))
            fresh.replace(self._path)
        except OSError as error:  # a full disk: the counters may go back by what comes now, the answers go on
            if not self._failed:
                _log.warning("counters not kept", extra={"fields": {"why": error.strerror or str(error)}})
            self._failed = True
            return
        self._failed = False

    def recall(self, spools: Path) -> None:
        """Go on from what the worker before us has kept and written."""
        try:
            kept = msgspec.msgpack.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("counters begin anew", extra={"fields": {"why": str(error)}})
            return
        if kept.machine != self._machine:
            return
        meter = self._meter
        meter.written, meter.unwritten = kept.written, kept.unwritten
        meter.requests = {
            (service, dialect, outcome, status): n for service, dialect, outcome, status, n in kept.requests
        }
        meter.tokens = kept.tokens
        for name, parts in kept.series.items():
            series = meter.series[name] = Series(meter.tokens.setdefault(name, [0, 0, 0]))
            for part in _PARTS:
                _restore(getattr(series, part), parts.get(part))
        self._count_rest(kept, spools)

    def _count_rest(self, kept: _Kept, spools: Path) -> None:
        number, offset = (kept.segment, kept.offset) if kept.segment else (1, 0)
        while (path := spools / spool.segment_name(kept.worker, number)).exists():
            try:
                batch = spool.read(path, offset)
            except Driver as error:  # it was ingested and removed in this moment
                _log.warning("records not counted again", extra={"fields": {"why": str(error)}})
                return
            for record in batch.records:
                self._meter.recount(record)
            after = batch.resume_offset if batch.corrupt else batch.next_offset
            number, offset = (number, after) if after > offset else (number + 1, 0)


def _sums(series: Series) -> dict[str, _Sums]:
    parts: dict[str, Histogram] = {part: getattr(series, part) for part in _PARTS}
    return {part: _Sums(histogram.counts, histogram.total) for part, histogram in parts.items()}


def _restore(histogram: Histogram, sums: _Sums | None) -> None:
    if sums is not None and len(sums.counts) == len(BUCKETS) + 1:
        histogram.counts, histogram.total = sums.counts, sums.total
