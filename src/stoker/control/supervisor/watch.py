"""Keep controller and gateways running, and hold the sockets so that no connection is refused while one is replaced.

``python -m stoker.control.supervisor``. No store, no framework, no threads: what it does not have cannot fail it.
1. A gateway comes back within three seconds; the controller with patience. Engines are never its children.
2. What a dead worker had in flight becomes `lost` records; if the disk is full they are written later.
3. SIGTERM and SIGINT: gateways drain and end, then the controller stops the engines and ends, then whatever engine is
   left. SIGHUP: engines stay, for an upgrade in place. A second signal ends the waiting.
4. kill -9 of it: gateways drain and end, the controller ends and leaves the engines; the next supervisor takes over.
"""

import contextlib
import logging
import os
import resource
import secrets
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.base.layout import Layout
from stoker.drivers import files, live
from stoker.drivers.hosts import children, processes
from stoker.drivers.ledger import lost
from stoker.drivers.lock import hold
from stoker.drivers.spool import Spool

LISTEN: Final = "127.0.0.1:8080"
ADMIN: Final = "127.0.0.1:8081"
GATEWAY_CEILING_SECONDS: Final = 2.0
CONTROLLER_CEILING_SECONDS: Final = 15.0
HEALTHY_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 60.0
CONTROLLER_STOP_SECONDS: Final = 60.0
ENGINE_GRACE_SECONDS: Final = 10.0
_WATCHED: Final = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_log = logging.getLogger("supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a supervisor is started with."""

    state_dir: Path
    listen: str = LISTEN
    admin: str = ADMIN
    workers: int = 1
    unmetered: bool = False
    tls_cert: str = ""
    tls_key: str = ""
    insecure_bind: bool = False  # whoever started us wants other machines served without TLS
    hub_endpoint: str = ""
    controller: str = "stoker.control"  # the modules that are run; tests put others here
    gateway: str = "stoker.gateway"


@dataclass(slots=True, kw_only=True)
class _Part:
    """One process that must run."""

    name: str
    module: str
    arguments: Sequence[str]
    fds: Sequence[int] = ()
    on_death: signal.Signals
    ceiling: float
    pid: int = 0
    started: float = 0.0
    failures: int = 0
    due: float = field(default=0.0)  # when it may start again


def delay(failures: int, *, ceiling: float) -> float:
    """How long to wait before a start after so many short lives: the first restart is at once."""
    return 0.0 if failures <= 1 else min(ceiling, 0.25 * 2.0 ** min(failures - 2, 16))


def run(settings: Settings) -> int:
    """Supervise until told to stop. Raises Conflict when another one runs here, Driver when an address is taken."""
    layout = Layout(settings.state_dir.absolute())
    layout.make()
    with hold(layout.run / "supervisor.lock", what="supervisor"):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            return _Supervisor(settings, layout).run()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Supervisor:
    def __init__(self, settings: Settings, layout: Layout) -> None:
        self._layout = layout
        self._public = children.bind(settings.listen)
        host, _, port = settings.admin.rpartition(":")
        ports = [str(int(port) + number) if int(port) else "0" for number in range(settings.workers)]
        self._admin = [children.bind(f"{host}:{each}") for each in ports]
        self._spool: Spool | None = None
        self._gateways = [self._gateway(settings, number) for number in range(settings.workers)]
        hub = ["--hub-endpoint", settings.hub_endpoint] if settings.hub_endpoint else []
        self._controller = _Part(
            name="controller",
            module=settings.controller,
            arguments=["--state-dir", str(layout.root), *hub],
            on_death=signal.SIGHUP,  # it ends and leaves the engines
            ceiling=CONTROLLER_CEILING_SECONDS,
        )

    def run(self) -> int:
        """Start everything, keep it running, stop it in order."""
        _allow_open_files()
        for path in self._layout.run.glob("gateway-*.live"):
            self._set_aside(path)
        self._write_run_file()
        told = None
        while told is None:
            for part in (self._controller, *self._gateways):
                self._keep(part)
            self._settle()
            woken = signal.sigtimedwait(_WATCHED, 0.2)
            self._reap()
            told = woken.si_signo if woken is not None and woken.si_signo != signal.SIGCHLD else None
        return self._stop(keep_engines=told == signal.SIGHUP)

    def _gateway(self, settings: Settings, number: int) -> _Part:
        fds = (self._public.fileno(), self._admin[number].fileno())
        arguments = ["--state-dir", str(self._layout.root), "--worker", str(number)]
        arguments += ["--listen-fd", str(fds[0]), "--admin-fd", str(fds[1])]
        return _Part(
            name=f"gateway-{number}",
            module=settings.gateway,
            arguments=arguments + _flags(settings),
            fds=fds,
            on_death=signal.SIGTERM,  # it closes its listener, drains and ends
            ceiling=GATEWAY_CEILING_SECONDS,
        )

    def _keep(self, part: _Part) -> None:
        now = clock.mono()
        if part.pid or now < part.due:
            return
        try:
            log_path = self._layout.logs / f"{part.name}.log"
            part.pid = children.start(part.module, part.arguments, log=log_path, on_death=part.on_death, fds=part.fds)
        except Driver as error:
            self._ended(part, str(error))
            return
        part.started = now
        _log.info("started", extra={"fields": {"part": part.name, "pid": part.pid}})

    def _reap(self) -> None:
        by_pid = {part.pid: part for part in (self._controller, *self._gateways) if part.pid}
        for pid, code in children.reap():
            if pid in by_pid:
                self._ended(by_pid[pid], f"exit {code}" if code >= 0 else f"signal {-code}")

    def _ended(self, part: _Part, how: str) -> None:
        now = clock.mono()
        part.failures = 1 if part.pid and now - part.started > HEALTHY_SECONDS else part.failures + 1
        part.due = now + delay(part.failures, ceiling=part.ceiling)
        part.pid = 0
        _log.warning("ended", extra={"fields": {"part": part.name, "how": how, "again_in_seconds": part.due - now}})
        if part is not self._controller:
            self._set_aside(self._layout.run / f"{part.name}.live")

    def _set_aside(self, path: Path) -> None:
        """Keep a dead worker's slot from its successor until its requests are accounted for."""
        with contextlib.suppress(FileNotFoundError):
            path.rename(path.with_name(f"lost-{secrets.token_hex(4)}.live"))

    def _settle(self) -> None:
        """Write `lost` records for the slots that were set aside. One that cannot be written now is tried again."""
        for path in self._layout.run.glob("lost-*.live"):
            try:
                state = live.read(path)
                if state is not None and _still_a_gateway(state.pid):
                    continue  # a predecessor's worker that drains; it is accounted for when it has gone
                found = lost.records(state, self._layout.spool, now=clock.now()) if state is not None else []
                if found:
                    self._spool = self._spool or Spool(self._layout.spool, f"supervisor-{secrets.token_hex(6)}")
                    for record in found:
                        self._spool.append(record)
                    self._spool.sync()
                    _log.warning("lost", extra={"fields": {"requests": len(found), "worker": state and state.worker}})
                path.unlink(missing_ok=True)
            except Driver as error:
                _log.error("cannot account for lost requests yet", extra={"fields": {"error": str(error)}})
                return

    def _stop(self, *, keep_engines: bool) -> int:
        self._write_run_file(stopping=True)
        _log.info("stopping", extra={"fields": {"keep_engines": keep_engines}})
        for part in self._gateways:
            _send(part, signal.SIGTERM)
        patient = self._wait(self._gateways, DRAIN_SECONDS)
        _send(self._controller, signal.SIGHUP if keep_engines else signal.SIGTERM)
        self._wait([self._controller], CONTROLLER_STOP_SECONDS if patient else ENGINE_GRACE_SECONDS)
        left = [] if keep_engines else _stop_engines(self._layout.root)
        for path in self._layout.run.glob("gateway-*.live"):
            self._set_aside(path)
        self._settle()
        if self._spool is not None:
            self._spool.close()
        (self._layout.run / "supervisor.json").unlink(missing_ok=True)
        if left:
            _log.error("engines did not end", extra={"fields": {"attempts": left}})
        return 1 if left else 0

    def _wait(self, parts: Sequence[_Part], seconds: float) -> bool:
        """Wait for processes to end, then kill them. A further signal ends the waiting; tells whether none came."""
        until, patient = clock.mono() + seconds, True
        while any(part.pid for part in parts) and clock.mono() < until:
            woken = signal.sigtimedwait(_WATCHED, 0.1)
            if woken is not None and woken.si_signo != signal.SIGCHLD:
                until, patient = min(until, clock.mono() + 1.0), False
            self._reap()
        for part in parts:
            _send(part, signal.SIGKILL)
        while any(part.pid for part in parts):
            signal.sigtimedwait({signal.SIGCHLD}, 0.1)
            self._reap()
        return patient

    def _write_run_file(self, *, stopping: bool = False) -> None:
        run = {
            "pid": os.getpid(),
            "start_ticks": processes.start_ticks(os.getpid()),
            "boot_id": processes.boot_id(),
            "listen": _name(self._public),
            "admin": [_name(each) for each in self._admin],
            "workers": len(self._gateways),
            "started_at": clock.now(),
            "stopping": stopping,  # whoever wants to start waits for the end instead of talking to a dying controller
        }
        files.replace(self._layout.run / "supervisor.json", msgspec.json.encode(run))


def _flags(settings: Settings) -> list[str]:
    tls = ["--tls-cert", settings.tls_cert, "--tls-key", settings.tls_key] if settings.tls_cert else []
    insecure = ["--insecure-bind"] if settings.insecure_bind else []
    return tls + insecure + (["--unmetered"] if settings.unmetered else [])


def _stop_engines(root: Path) -> list[str]:
    """End what the controller did not: it was killed, or it died before it could. Names what does not end."""
    from stoker.drivers.hosts import leftovers  # noqa: PLC0415 - only a stopping supervisor needs it

    return leftovers.stop_all(root)[1]


def _send(part: _Part, number: signal.Signals) -> None:
    if part.pid:
        processes.send(part.pid, number)


def _still_a_gateway(pid: int) -> bool:
    try:
        return b"stoker.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _name(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _allow_open_files() -> None:
    """Each stream needs two descriptors; what the system allows at most is inherited by the gateways."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
