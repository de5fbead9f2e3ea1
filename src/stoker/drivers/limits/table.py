"""Where do the workers of one machine keep their limits? In rows of a file that they all map, one row a scope.

A reservation locks the rows of all its scopes in the order of the file, so that workers neither over-admit together nor
wait for each other in a circle; the kernel drops the locks with the process that held them. What a dead worker had
running is freed by whoever starts next, whichever number it has.

The file may be lost, or be replaced under a running worker. What was used today is then known from the ledger, which
is read at the start (``recall``); a worker that finds another file under the name goes over to it and takes what it
knows along.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from stoker.base.errors import Driver
from stoker.decide.quota.level import (
    Demand,
    Level,
    Refusal,
    Verdict,
    ended,
    granted,
    left,
    left_of,
    longest,
    refilled,
    refuse,
)
from stoker.decide.quota.level import settled as settled_level
from stoker.decide.quota.level import taken as taken_level
from stoker.drivers.hosts import processes
from stoker.drivers.slots import WORKERS, Rows

_LEVEL: Final = struct.Struct("<dddqqq")  # requests, tokens, at, day, day's tokens, unused
_COUNTS: Final = struct.Struct(f"<{WORKERS}i")  # requests under way, by worker
_ONE: Final = struct.Struct("<i")
_OWNER: Final = struct.Struct("<qq")  # pid and start of a worker, in a row of its own
_SIZE: Final = _LEVEL.size + _COUNTS.size
_pack_level = _LEVEL.pack_into
_pack_one = _ONE.pack_into


class Table:
    """The table of one machine, as one worker sees it."""

    def __init__(self, path: Path, worker: int) -> None:
        if not 0 <= worker < WORKERS:
            raise Driver(f"worker {worker} has no column in the table of limits: there are {WORKERS}")
        self._path = path
        self._worker = worker
        self._column = _LEVEL.size + 4 * worker
        self._today = 0
        self._used: Mapping[str, int] = {}  # tokens of today by scope, as the ledger has them
        self._known: dict[str, int] = {}  # rows that have what the ledger knows
        self.held: dict[str, int] = {}  # requests of this worker under way, by scope
        self._table = Rows(path, row_bytes=_SIZE)
        self._own()

    def _own(self) -> None:
        """Take our column, and free those of workers that are gone."""
        table = self._table
        for number in range(WORKERS):
            at = table.row(f"\0worker {number}")
            pid, ticks = _OWNER.unpack_from(table.map, at)
            if number == self._worker:
                self.forget(number)
                _OWNER.pack_into(table.map, at, os.getpid(), processes.start_ticks(os.getpid()) or 0)
            elif pid and processes.start_ticks(pid) != ticks:
                self.forget(number)
                _OWNER.pack_into(table.map, at, 0, 0)

    def recall(self, used: Mapping[str, int], *, day: int) -> None:
        """Take what the ledger has for a day: no row may say less."""
        self._used, self._today = used, day
        self._known.clear()

    def reserve(self, demands: Sequence[Demand], *, tokens: int, now: float, force: bool = False) -> Verdict:
        """Take a request and an estimate of its tokens from every scope, or from none and say why.

        ``force``: somebody else has allowed it; it is counted whatever the levels are.
        """
        if len(demands) == 1:  # nearly always; the loops below would double its price
            return self._reserve(demands[0], tokens=tokens, now=now, force=force)
        rows = self._lock(demands)
        try:
            levels = [refilled(self._level(at), demand.limits, now) for demand, at in zip(demands, rows, strict=True)]
            if not force:
                refusal = self._refusal(demands, rows, levels, tokens=tokens, now=now)
                if refusal is not None:
                    return Verdict(refusal, left(demands, levels, now))
            levels = [taken_level(level, tokens) for level in levels]
            for demand, at, level in zip(demands, rows, levels, strict=True):
                self._write(at, level)
                self._count(demand.name, at, 1)
        finally:
            self._unlock(rows)
        return Verdict(None, left(demands, levels, now))

    def _reserve(self, demand: Demand, *, tokens: int, now: float, force: bool) -> Verdict:
        name, limits, table = demand.name, demand.limits, self._table
        at = self._known.get(name) or self._row(name)
        lockf, fd, mapped, refusal = fcntl.lockf, table.fd, table.map, None
        lockf(fd, fcntl.LOCK_EX, _SIZE, at)
        try:
            before = self._level(at)
            running = sum(_COUNTS.unpack_from(mapped, at + _LEVEL.size)) if limits.concurrent else 0
            level = granted(before, limits, tokens=tokens, running=running, now=now)
            if level is None:
                level = refilled(before, limits, now)
                refusal = None if force else refuse(demand, level, tokens=tokens, running=running, now=now)
                level = taken_level(level, tokens) if refusal is None else level
            if refusal is None:
                _pack_level(mapped, at, level.requests, level.tokens, level.at, level.day, level.spent, 0)
                held = self.held[name] = self.held.get(name, 0) + 1
                _pack_one(mapped, at + self._column, held)
        finally:
            lockf(fd, fcntl.LOCK_UN, _SIZE, at)
        return Verdict(refusal, left_of(limits, level, now))

    def _settle(self, demand: Demand, more: int, *, request: bool, now: float) -> None:
        name, table = demand.name, self._table
        at = self._known.get(name) or self._row(name)
        lockf, fd, mapped = fcntl.lockf, table.fd, table.map
        lockf(fd, fcntl.LOCK_EX, _SIZE, at)
        try:
            level = ended(self._level(at), demand.limits, more=more, request=request, now=now)
            _pack_level(mapped, at, level.requests, level.tokens, level.at, level.day, level.spent, 0)
            held = self.held[name] = max(0, self.held.get(name, 0) - 1)
            _pack_one(mapped, at + self._column, held)
        finally:
            lockf(fd, fcntl.LOCK_UN, _SIZE, at)

    def _refusal(
        self, demands: Sequence[Demand], rows: Sequence[int], levels: Sequence[Level], *, tokens: int, now: float
    ) -> Refusal | None:
        refusals = None
        for demand, at, level in zip(demands, rows, levels, strict=True):
            running = sum(_COUNTS.unpack_from(self._table.map, at + _LEVEL.size)) if demand.limits.concurrent else 0
            refusal = refuse(demand, level, tokens=tokens, running=running, now=now)
            if refusal is not None:
                refusals = [refusal] if refusals is None else [*refusals, refusal]
        return longest(refusals) if refusals is not None else None

    def settle(self, demands: Sequence[Demand], *, reserved: int, used: int, now: float, request: bool = True) -> None:
        """End a request that was let in: what it used takes the place of what was reserved."""
        if len(demands) == 1:
            self._settle(demands[0], used - reserved, request=request, now=now)
            return
        rows = self._lock(demands)
        try:
            for at, demand in zip(rows, demands, strict=True):
                level = refilled(self._level(at), demand.limits, now)
                self._write(at, settled_level(level, reserved, used, request=request))
                self._count(demand.name, at, -1)
        finally:
            self._unlock(rows)

    def level(self, demand: Demand, *, now: float) -> Level:
        """Tell what a scope has left here."""
        return refilled(self._level(self._row(demand.name)), demand.limits, now)

    def running(self, name: str) -> int:
        """Tell how many requests of a scope are under way on this machine."""
        return sum(_COUNTS.unpack_from(self._table.map, self._row(name) + _LEVEL.size))

    def _row(self, name: str) -> int:
        at = self._known.get(name)
        if at is None:
            at = self._table.row(name)
            used = self._used.get(name, 0)
            if used:
                self._table.lock(at, _SIZE)
                try:
                    self._raise(at, used)
                finally:
                    self._table.unlock(at, _SIZE)
            self._known[name] = at
        return at

    def _raise(self, at: int, used: int) -> None:
        level = self._level(at)
        if level.day < self._today:
            level = Level(level.requests, level.tokens, level.at, self._today, used)
        elif level.day == self._today and level.spent < used:
            level = Level(level.requests, level.tokens, level.at, level.day, used)
        self._write(at, level)

    def _level(self, at: int) -> Level:
        requests, tokens, then, day, spent, _ = _LEVEL.unpack_from(self._table.map, at)
        # A row that nobody has used is full; it may know from the ledger what was used today.
        return Level(requests, tokens, then, day, spent) if then else Level(day=day, spent=spent)

    def _write(self, at: int, level: Level) -> None:
        _LEVEL.pack_into(self._table.map, at, level.requests, level.tokens, level.at, level.day, level.spent, 0)

    def _count(self, name: str, at: int, more: int) -> None:
        held = self.held[name] = max(0, self.held.get(name, 0) + more)
        _ONE.pack_into(self._table.map, at + self._column, held)

    def _lock(self, demands: Sequence[Demand]) -> list[int]:
        known, lockf, fd = self._known, fcntl.lockf, self._table.fd
        rows = [known.get(demand.name) or self._row(demand.name) for demand in demands]
        for at in sorted(rows):
            lockf(fd, fcntl.LOCK_EX, _SIZE, at)
        return rows

    def _unlock(self, rows: Sequence[int]) -> None:
        lockf, fd = fcntl.lockf, self._table.fd
        for at in rows:
            lockf(fd, fcntl.LOCK_UN, _SIZE, at)

    def look(self) -> None:
        """Go over to another file, where somebody removed or replaced ours: other workers would count elsewhere."""
        with contextlib.suppress(OSError):
            ours, there = os.fstat(self._table.fd), self._path.stat()
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                return
        old, known = self._table, dict(self._known)
        kept = {name: self._level(at) for name, at in known.items()}
        self._table = Rows(self._path, row_bytes=_SIZE)
        self._own()
        self._known.clear()
        for name, level in kept.items():
            at = self._table.row(name)
            self._table.lock(at, _SIZE)
            try:
                self._write(at, _lower(self._level(at), level))
                _ONE.pack_into(self._table.map, at + _LEVEL.size + 4 * self._worker, self.held.get(name, 0))
            finally:
                self._table.unlock(at, _SIZE)
        old.close()

    def forget(self, worker: int) -> None:
        """Free the requests at once that a dead worker held."""
        column = _LEVEL.size + 4 * worker
        for at in self._table.positions():
            _ONE.pack_into(self._table.map, at + column, 0)

    def close(self) -> None:
        """Unmap."""
        self._table.close()


def _lower(one: Level, two: Level) -> Level:
    """Put two accounts of one scope together: whatever one of them has taken is taken."""
    day = max(one.day, two.day)
    spent = max(level.spent for level in (one, two) if level.day == day)
    return Level(min(one.requests, two.requests), min(one.tokens, two.tokens), max(one.at, two.at), day, spent)
