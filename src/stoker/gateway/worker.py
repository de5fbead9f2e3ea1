"""How does a gateway worker live? Load policy, listen, serve, drain, stop: in that order, and backwards at the end."""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver, Invalid
from stoker.decide.quota.level import Demand, Level
from stoker.drivers import files
from stoker.drivers.aside.errands import Aside
from stoker.drivers.limits.table import Table
from stoker.drivers.live import Slot
from stoker.drivers.slots import Slots
from stoker.drivers.spool import Spool
from stoker.facts import routes
from stoker.facts.live import EndpointLoad, Live, ServiceLoad
from stoker.gateway import admin as pages
from stoker.gateway.admin import Admin
from stoker.gateway.app import App
from stoker.gateway.door.doorway import Doorway
from stoker.gateway.door.front import Front, Pair
from stoker.gateway.fleet import Fleet, Upstream
from stoker.gateway.forward import Forward
from stoker.gateway.house import House
from stoker.gateway.meter import Meter, epoch_of
from stoker.gateway.quota.quota import Quota, Store
from stoker.gateway.reload import Policy
from stoker.gateway.steer.again import Again
from stoker.gateway.tally.keep import Tally
from stoker.http1.server import Server

_log = logging.getLogger("gateway")
_TICK: Final = 0.1  # time limits, comments of life and slots that other workers freed
_POLL: Final = 0.2  # changed files
_BEAT: Final = 1.0  # live state and fdatasync
_NOTE: Final = 0.5  # the access log


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor tells a worker."""

    folder: Path
    worker: int = 0
    unmetered: bool = False
    drain: float | None = None  # None: as the routes say
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False  # serve beyond loopback without TLS


class Worker:
    """One gateway process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        folder = options.folder
        run = folder / "run"
        self.boot = f"gateway-{options.worker}-{secrets.token_hex(6)}"
        self._spool = Spool(folder / "spool", self.boot, unmetered=options.unmetered)
        self._slots = Slots(run / "slots", options.worker)
        self._limits = Quota(Table(run / "limits", options.worker), folder, self._open_store)
        self._live = Slot(run / f"gateway-{options.worker}.live")
        self._fleet = Fleet(self._slots, folder)
        self._meter = Meter(self._spool, self.boot)
        salt = files.secret(folder / "keys" / "salt").encode()[:64]
        self._door = Doorway(folder, options.worker)
        self._door.metrics = self._metrics
        self._tally = Tally(run / f"gateway-{options.worker}.counts", self._meter, self._spool, self.boot)
        self._tally.recall(folder / "spool")
        self.house = House(
            fleet=self._fleet,
            meter=self._meter,
            live=self._live,
            limits=self._limits,
            salt=salt,
            door=self._door,
            again=Again(run, options.worker),
            aside=Aside(),
        )
        self._fleet.died = self.house.again.died
        self.app = App(self.house)
        self._policy = Policy(folder, self.app, self._fleet)
        self._front: Front | None = None
        self._draining = False

    def obey(self, stop: asyncio.Event) -> None:
        """Set ``stop`` at SIGTERM and SIGINT, look at the files at SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._look)

    def _look(self) -> None:
        self._policy.poll()
        self._limits.obey(self._fleet.routes.shared_limits)

    def _open_store(self, rules: routes.SharedLimits, recall: Callable[[Demand], Level]) -> Store:
        """Prepare the store that several machines share; its client is loaded only where somebody wants one."""
        try:
            from stoker.drivers.limits.store import Store as Shared  # noqa: PLC0415 -- 10 MB that few gateways need
        except ModuleNotFoundError as error:
            raise Driver(f"shared limits need a package that is not installed ({error.name}): stoker[redis]") from error
        machine = hashlib.blake2b(self.house.salt, digest_size=8).hexdigest()
        return Shared(rules, self._options.folder, worker=self.boot, machine=machine, recall=recall)

    async def run(self, public: socket.socket, admin: socket.socket | None, *, stop: asyncio.Event) -> None:
        """Serve until told to stop, then drain."""
        loop = asyncio.get_running_loop()
        self._door.port = public.getsockname()[1]
        await self._limits.begin()
        self._look()  # before a connection is accepted: nobody is ever let in by an empty policy
        server = Server(self.app)
        side = Server(Admin(self._metrics, self.live))
        front = self._open(public, server)
        await front.follow(self._door.listener)
        inside = await loop.create_server(side.protocol, sock=admin) if admin is not None else None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(beat) for beat in (self._tick(), self._poll(), self._beat(), self._note())]
            _log.info("serving", extra={"fields": {"worker": self.boot, "routes": self._fleet.routes.generation}})
            await stop.wait()
            front.close()
            await self._drain(server)
            await self._limits.leave()
            for task in tasks:
                task.cancel()
        if inside is not None:
            inside.close()
        server.stop()
        side.stop()
        self._close()

    def _open(self, public: socket.socket, server: Server) -> Front:
        """Prepare the public port. Raises Invalid where it could never be opened as it is."""
        options, listener = self._options, self._door.listener
        front = self._front = Front(public, server.protocol)
        front.given = Pair(options.cert_file, options.key_file)
        front.insecure = options.insecure
        named = options.cert_file or (listener.cert_file if listener is not None else "")
        if not (named or front.insecure or front.is_local):
            raise Invalid(
                "other machines reach this address, and without TLS keys and prompts cross the network in the clear: "
                "give --tls-cert and --tls-key, or say --insecure-bind where TLS stands in front"
            )
        return front

    async def _drain(self, server: Server) -> None:
        """Let running requests finish, up to the limit; then end them in their dialect."""
        self._draining = True
        limit = self._options.drain if self._options.drain is not None else self._fleet.routes.drain
        until = clock.mono() + limit
        server.drain()
        while server.connections and self.house.active and clock.mono() < until:  # noqa: ASYNC110 -- three conditions, twice in a life
            await asyncio.sleep(0.02)
        for request in list(self.house.active):
            request.expire()
        grace = clock.mono() + 1.0
        while server.connections and clock.mono() < grace:  # noqa: ASYNC110 -- the same
            await asyncio.sleep(0.02)

    def _close(self) -> None:
        self.house.aside.close()
        for up in self._fleet.upstreams.values():
            up.pool.close()
        self._say()
        self._tally.keep()
        self._door.close()
        try:
            self._spool.close()
        except Driver as error:
            _log.warning("spool not synced", extra={"fields": {"why": str(error)}})
        for part in (self._live, self._slots, self._limits.table, self.house.again):
            part.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = clock.mono()
            for request in list(self.house.active):
                request.tick(now)
            self.house.again.look()
            self._fleet.sweep()
            self.house.aside.sweep(now)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL)
            before = self._generations()
            self._look()
            if self._front is not None and not self._draining:
                await self._front.follow(self._door.listener)
            if self._generations() != before:
                self._say()  # a rollout, a drain or a revocation waits for this acknowledgement
                self._limits.refresh()

    def _generations(self) -> tuple[int, int]:
        return self._fleet.routes.generation, self._policy.callers_generation

    async def _beat(self) -> None:
        loop, counted = asyncio.get_running_loop(), -1
        while True:
            self._limits.look()
            self._say()
            if self._meter.written != counted:
                counted = self._meter.written
                self._tally.keep()
            await asyncio.sleep(_BEAT)
            try:
                await loop.run_in_executor(None, self._spool.sync)  # a thread: fdatasync waits for the disk
            except Driver as error:
                _log.warning("spool not synced", extra={"fields": {"why": str(error)}})

    async def _note(self) -> None:
        """Hand the access log to its thread."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_NOTE)
            journal = self._door.journal
            lines = journal.take() if journal is not None else b""
            if journal is not None and lines:
                await loop.run_in_executor(None, journal.write, lines)

    def _metrics(self) -> bytes:
        self._tally.keep()  # first: what was shown must never be taken back
        return pages.page(self._meter, self.live(), self._options.worker)

    def _say(self) -> None:
        try:
            self._live.write(self.live())
        except Driver as error:  # the disk is full: what was said last grows stale, and stale is unknown
            _log.warning("live state not written", extra={"fields": {"why": str(error)}})

    def live(self) -> Live:
        """Say how this worker is."""
        fleet, front = self._fleet, self._front
        ups = (*fleet.upstreams.values(), *fleet.retired)
        requests = [request.ticket.in_flight() for request in self.house.active if isinstance(request, Forward)]
        return Live(
            worker=self.boot,
            pid=os.getpid(),
            at=clock.now(),
            routes_generation=fleet.routes.generation,
            callers_generation=self._policy.callers_generation,
            routes_error="; ".join(filter(None, (self._policy.problem, front.problem if front is not None else ""))),
            limits_problem=self._limits.problem,
            tls_cert_file=front.cert_file if front is not None else "",
            draining=self._draining,
            endpoints=tuple(_load(up) for up in ups),
            services=tuple(
                ServiceLoad(
                    name=name,
                    waiting=service.waiting,
                    oldest_waiting_since=epoch_of(service.oldest) if service.oldest else 0.0,
                )
                for name, service in fleet.services.items()
            ),
            in_flight=tuple(requests),
            records_written=self._meter.written,
            records_unsynced=self._spool.unsynced,
            accounting=self._meter.accounting,
        )


def _load(up: Upstream) -> EndpointLoad:
    return EndpointLoad(
        name=up.spec.name,
        incarnation=up.spec.incarnation,
        running=up.local,
        last_token_at=epoch_of(up.last_token_at) if up.last_token_at else 0.0,
        ejected_until=epoch_of(up.ejected_until) if up.ejected_until else 0.0,
    )


def listen(address: str) -> socket.socket:
    """Bind a socket for a worker that nobody handed one."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host.strip("[]") or "127.0.0.1", int(port)))
    except OSError as error:
        bound.close()
        raise Driver(f"cannot listen on {address}: {error.strerror}") from error
    return bound


def inherited(descriptor: int) -> socket.socket:
    """Take over a listening socket from the supervisor; it stays open there when we go."""
    with contextlib.suppress(OSError):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 -- the system's own signature
    return socket.socket(fileno=descriptor)
