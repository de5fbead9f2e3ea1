"""What is counted? One ledger record for each request, and the counters that Prometheus reads."""

import itertools
import logging
from bisect import bisect_left
from typing import Final, Protocol

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.facts.ending import Outcome
from stoker.facts.probe import CALLER as PROBE_CALLER
from stoker.facts.record import Record

_log = logging.getLogger("gateway.meter")

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Spool(Protocol):
    """Where records go."""

    accounting: str

    def append(self, record: Record) -> None:
        """Hand a record to the kernel; raises Driver when there is no room."""


class Journal(Protocol):
    """Where finished requests are noted for people."""

    lost: int

    def add(self, record: Record, client: str) -> None:
        """Note one."""


class Histogram:
    """Observations of one series."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add one."""
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value


class Series:
    """What is counted of one service."""

    __slots__ = ("duration", "first_token", "gap", "queue", "tokens")

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens
        self.duration = Histogram()
        self.first_token = Histogram()
        self.gap = Histogram()
        self.queue = Histogram()


class Meter:
    """Writes records and keeps counters."""

    def __init__(self, spool: Spool, boot: str) -> None:
        self._spool = spool
        self._append = spool.append
        self._boot = boot
        self._sequence = itertools.count(1)
        self.journal: Journal | None = None
        self.written = 0
        self.unwritten = 0  # requests that were refused while the disk was full
        self.requests: dict[tuple[str, str, str, int], int] = {}
        self.tokens: dict[str, list[int]] = {}  # prompt, cached, output
        self.series: dict[str, Series] = {}

    @property
    def refusing(self) -> bool:
        """Whether nothing may be answered, because it could not be accounted for."""
        return self._spool.accounting == "refusing"

    @property
    def accounting(self) -> str:
        """The state of the spool."""
        return self._spool.accounting

    def name(self) -> str:
        """Make the id of a record: worker boot and sequence."""
        return f"{self._boot}-{next(self._sequence)}"

    def write(self, record: Record, client: str = "") -> bool:
        """Write a record; False when the spool refuses it, and then the answer must not go out as a good one."""
        try:
            self._append(record)
        except Driver as error:
            self.unwritten += 1
            _log.warning("record refused", extra={"fields": {"why": str(error)}})
            if self.journal is not None:
                told = {"outcome": Outcome.REJECTED, "detail": "accounting", "status": 503}
                self.journal.add(msgspec.structs.replace(record, **told), client)
            return False
        if self.journal is not None:
            self.journal.add(record, client)
        self.written += 1
        if record.caller != PROBE_CALLER:  # as in recount
            self._count(record)
        return True

    def recount(self, record: Record) -> None:
        """Count a record that is in the spool, ours or that of the worker before us."""
        self.written += 1
        if record.caller != PROBE_CALLER:  # the controller's probes are nobody's traffic
            self._count(record)

    def _count(self, record: Record) -> None:
        service = record.service
        key = (service, record.dialect, record.outcome, record.status)
        self.requests[key] = self.requests.get(key, 0) + 1
        if not service:
            return
        series = self.series.get(service)
        if series is None:
            series = self.series[service] = Series(self.tokens.setdefault(service, [0, 0, 0]))
        sums, tokens, times = series.tokens, record.tokens, record.times
        sums[0] += tokens.prompt
        sums[1] += tokens.cached
        sums[2] += tokens.output
        # Written out instead of two calls of observe(): every request comes by here.
        took, waited = series.duration, series.queue
        took.counts[bisect_left(BUCKETS, times.total)] += 1
        took.total += times.total
        waited.counts[bisect_left(BUCKETS, times.queue)] += 1
        waited.total += times.queue
        if times.first_token:
            series.first_token.observe(times.first_token)
        if record.gaps.count:
            series.gap.observe(record.gaps.mean)


def epoch_of(mono: float) -> float:
    """Turn a monotonic time of this process into seconds since the epoch."""
    return clock.now() - (clock.mono() - mono)
