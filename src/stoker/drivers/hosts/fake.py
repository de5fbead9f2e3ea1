"""A host without processes: for tests and rehearsals. Attempts run until they are told to end."""

from collections.abc import Callable, Sequence

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.drivers.hosts.base import Order
from stoker.facts.observed import ExitFile, Phase, RunFile, Running


class FakeHost:
    """Remembers orders. ``end``, ``lose`` and ``refuse`` are what a test does to it."""

    def __init__(self, *, now: Callable[[], float] = clock.now) -> None:
        self.orders: dict[str, Order] = {}
        self.refuse = ""  # why the next start fails; empty: it does not
        self._now = now
        self._running: dict[str, Running] = {}
        self._ports = iter(range(20_000, 32_000))

    async def start(self, order: Order) -> None:
        """Start an attempt; repeating it changes nothing."""
        if self.refuse:
            raise Driver(self.refuse)
        if order.name in self._running:
            return
        pid = 1000 + 2 * len(self.orders)
        run = RunFile(
            name=order.name,
            uid=order.uid,
            attempt=order.attempt,
            boot_id="fake",
            shim_pid=pid,
            shim_start_ticks=pid,
            engine_pid=pid + 1,
            engine_start_ticks=pid + 1,
            spec_hash=order.spec_hash,
            port=order.port,
            devices=order.devices,
            argv=order.argv,
            secret_file=f"{order.name}.secret" if order.secret else "",
            log=f"{order.name}.log",
            started_at=self._now(),
        )
        self.orders[order.name] = order
        self._running[order.name] = Running(run=run, phase=Phase.RUNNING)

    async def stop(self, name: str, *, grace: float) -> None:  # noqa: ARG002 - nothing here needs to be waited for
        """End it at the next ``list`` but one: a stop is seen as STOPPING first, as with real processes."""
        if name in self._running and self._running[name].phase in (Phase.STARTING, Phase.RUNNING):
            self._running[name] = msgspec.structs.replace(self._running[name], phase=Phase.STOPPING)

    async def list(self) -> Sequence[Running]:
        """Tell every attempt, in the order of names."""
        seen = [self._running[name] for name in sorted(self._running)]
        for each in seen:
            if each.phase is Phase.STOPPING:
                self.end(each.run.name, code=0)
        return seen

    async def forget(self, name: str) -> None:
        """Remove the traces of an attempt that has ended."""
        if name in self._running and self._running[name].phase not in (Phase.EXITED, Phase.LOST):
            raise Driver(f"{name} still runs; it cannot be forgotten")
        self._running.pop(name, None)

    def lease_port(self) -> int:
        """Pick a port that was never picked before."""
        return next(self._ports)

    def end(self, name: str, *, code: int | None = None, signal: int | None = None, error: str = "") -> None:
        """Let an attempt exit by itself."""
        ended = ExitFile(name=name, at=self._now(), code=code, signal=signal, error=error)
        self._running[name] = msgspec.structs.replace(self._running[name], phase=Phase.EXITED, exit=ended)

    def lose(self, name: str) -> None:
        """Let shim and engine vanish without a trace."""
        self._running[name] = msgspec.structs.replace(self._running[name], phase=Phase.LOST)
