"""Who decides about limits: the table of this machine, or the store that several machines share?

While the store answers it decides, and the table counts along. While it does not, this machine decides alone and lets
through its share of every limit: never everything. What it let through is told to the store when that is back.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.decide.quota import level
from stoker.decide.quota.level import DAY_SECONDS, Demand, Level, Verdict
from stoker.decide.quota.scopes import by_scope, demands
from stoker.drivers.ledger import today
from stoker.drivers.limits.table import Table
from stoker.facts import routes
from stoker.facts.routes import Caller, Service

_BEGIN_SECONDS: Final = 2.0
_KNOWN: Final = 4096  # pairs of caller and model; more are worked out anew


class Hold(msgspec.Struct, frozen=True):
    """What one request was given."""

    demands: Sequence[Demand]  # as the table keeps them
    tokens: int
    whole: Sequence[Demand]  # as the store keeps them; empty: it does not know of this one


class Store(Protocol):
    """The store that several machines share."""

    up: bool
    problem: str

    def reserve(self, demands: Sequence[Demand], tokens: int, done: Callable[[Verdict | None], None]) -> None:
        """Ask for a request and its estimate; None: it does not answer."""

    def settle(self, demands: Sequence[Demand], *, reserved: int, used: int, request: bool) -> None:
        """End a request."""

    def hold(self, demands: Sequence[Demand]) -> None:
        """Note a request that it was not asked about."""

    async def run(self) -> None:
        """Serve until told to leave."""

    def leave(self) -> None:
        """Come to an end."""


_Done = Callable[[Verdict, Hold | None], None]
_Open = Callable[[routes.SharedLimits, Callable[[Demand], Level]], Store]


class Quota:
    """The limits as one worker keeps them."""

    def __init__(self, table: Table, folder: Path, opens: _Open) -> None:
        self.table = table
        self._folder = folder
        self._opens = opens
        self._rules: routes.SharedLimits | None = None
        self._store: Store | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._again = False  # policy has changed while the ledger was read
        self._known: dict[tuple[str, str], tuple[Caller, Service, tuple[Demand, ...], tuple[Demand, ...]]] = {}
        self._unread = self._unopened = ""

    # What applies.

    def demands(self, caller: Caller, service: Service) -> tuple[Demand, ...]:
        """Say which limits a request of a caller for a model meets."""
        return self._both(caller, service)[0]

    def _both(self, caller: Caller, service: Service) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
        found = self._known.get((caller.name, service.name))
        if found is not None and found[0] is caller and found[1] is service:
            return found[2], found[3]
        if len(self._known) >= _KNOWN:
            self._known.clear()
        whole = demands(caller, service)
        part = self._rules.share if self._rules is not None else 1.0
        shared = tuple(
            Demand(d.name, level.share(d.limits, part), f"{d.whose}, on this machine", d.model) for d in whole
        )
        self._known[caller.name, service.name] = (caller, service, whole, shared)
        return whole, shared

    async def begin(self) -> None:
        """Read from the ledger what was used today, before anybody is let in: then the day's limits hold at once.

        A spool that nobody has taken in for long is read beside the first requests: a gateway must come back.
        """
        self._unread = "what was used today is still being read from the ledger"
        self.refresh()
        await asyncio.wait(self._reading, timeout=_BEGIN_SECONDS)

    def refresh(self) -> None:
        """Read it again, beside what is going on: a new limit counts what was used before it came."""
        self._again = bool(self._reading)
        if not self._reading:
            task = asyncio.get_running_loop().create_task(self._recall())
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _recall(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            day = int(clock.now() // DAY_SECONDS)
            used = await asyncio.to_thread(self._read, day)
            if isinstance(used, str):
                self._unread = f"what was used today cannot be read: {used}"
            else:
                self._unread = ""
                self.table.recall(used, day=day)

    def _read(self, day: int) -> dict[str, int] | str:
        try:
            return by_scope(today.used(self._folder / "ledger.db", self._folder / "spool", day=day))
        except Driver as error:
            return str(error)

    # One request.

    def reserve(self, caller: Caller, service: Service, *, tokens: int, done: _Done) -> None:
        """Ask for a request and an estimate of its tokens; ``done`` is called once, at once or a moment later."""
        whole, shared = self._both(caller, service)
        store = self._store
        if store is None and not self._unopened:
            verdict = self.table.reserve(whole, tokens=tokens, now=clock.now())
            done(verdict, None if verdict.refusal is not None else Hold(whole, tokens, ()))
        elif store is not None and store.up:
            store.reserve(whole, tokens, lambda verdict: self._told(verdict, whole, shared, tokens, done))
        else:
            self._decide(whole, shared, tokens, done)

    def _told(
        self, verdict: Verdict | None, whole: Sequence[Demand], shared: Sequence[Demand], tokens: int, done: _Done
    ) -> None:
        if verdict is None:
            self._decide(whole, shared, tokens, done)
        elif verdict.refusal is not None:
            done(verdict, None)
        else:
            self.table.reserve(whole, tokens=tokens, now=clock.now(), force=True)
            done(verdict, Hold(whole, tokens, whole))

    def _decide(self, whole: Sequence[Demand], shared: Sequence[Demand], tokens: int, done: _Done) -> None:
        """Decide without the store."""
        verdict = self.table.reserve(shared, tokens=tokens, now=clock.now())
        if verdict.refusal is not None:
            done(verdict, None)
            return
        if self._store is not None:
            self._store.hold(whole)
        done(verdict, Hold(shared, tokens, whole))

    def settle(self, hold: Hold, *, used: int, request: bool) -> None:
        """End a request: what it used takes the place of what was reserved; ``request``: it counts as one."""
        self.table.settle(hold.demands, reserved=hold.tokens, used=used, now=clock.now(), request=request)
        if hold.whole and self._store is not None:
            self._store.settle(hold.whole, reserved=hold.tokens, used=used, request=request)

    # The worker.

    def obey(self, rules: routes.SharedLimits | None) -> None:
        """Share limits by other rules from now on."""
        if rules == self._rules:
            return
        self._rules = rules
        self._known.clear()
        if self._store is not None:
            self._store.leave()
        self._store, self._unopened = None, ""
        if rules is None:
            return
        try:
            self._store = self._opens(rules, self._level)
        except Driver as error:  # it cannot be had here at all
            self._unopened = str(error)
            return
        task = asyncio.get_running_loop().create_task(self._store.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _level(self, demand: Demand) -> Level:
        return self.table.level(demand, now=clock.now())

    def look(self) -> None:
        """Look whether the table is still the one that others use."""
        self.table.look()

    @property
    def shared(self) -> bool | None:
        """Whether limits hold over all machines; None: nobody wants them to."""
        return None if self._rules is None else self._store is not None and self._store.up

    @property
    def problem(self) -> str:
        """What keeps limits from being kept as they should be."""
        store, rules = self._store, self._rules
        away = self._unopened or (store.problem if store is not None and not store.up else "")
        if away and rules is not None:
            away = f"{away}; this machine keeps {rules.share:g} of every limit by itself"
        return "; ".join(filter(None, (self._unread, away)))

    async def leave(self) -> None:
        """Say what is still to be said."""
        if self._store is not None:
            self._store.leave()
        if self._running:
            await asyncio.wait(self._running, timeout=1.0)
        for task in (*self._running, *self._reading):
            task.cancel()
