"""Engines as processes of this machine, each under a shim. What it tells comes from run files, locks and /proc alone.

An attempt whose shim was killed has nobody to collect it: whatever carries its mark in the environment is killed, and
it is told as STOPPING until that is gone, then as LOST. The mark names the run folder too, so two state directories on
one machine never touch each other's engines.
"""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.base.layout import Layout
from stoker.drivers import files
from stoker.drivers.hosts import processes, shim
from stoker.drivers.hosts.base import Order
from stoker.facts.observed import ExitFile, Phase, RunFile, Running

MARK: Final = "STOKER_ATTEMPT"
INHERITED: Final = ("PATH", "HOME", "LANG")
PORTS: Final = range(20_000, 32_000)  # below the ephemeral range: no outgoing connection takes a leased one
START_SECONDS: Final = 30.0
KEPT_LOGS: Final = 8  # attempts of one replica whose logs stay

_File = TypeVar("_File", RunFile, ExitFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One attempt's files and lock, read at one moment."""

    run: RunFile
    exit: ExitFile | None
    held: bool
    asked_to_stop: bool


class LocalHost:
    """The host of one state directory. ``kills`` is for the survival tests (see shim)."""

    def __init__(self, root: Path, *, kills: Sequence[str] = (), log_bytes: int = shim.LOG_BYTES) -> None:
        self._run = Layout(root).run
        self._logs = Layout(root).logs
        self._kills = tuple(kills)
        self._log_bytes = log_bytes
        self._boot_id = processes.boot_id()
        self._leases: dict[int, float] = {}
        self._leasing = threading.Lock()

    async def start(self, order: Order) -> None:
        """Start an attempt and return once it is promised (run file on disk); repeating it changes nothing."""
        await asyncio.to_thread(self._start, order)

    async def stop(self, name: str, *, grace: float) -> None:
        """Hand the shim a deadline; it ends the engine by then, whether we live or not."""
        await asyncio.to_thread(self._stop, name, grace)

    async def list(self) -> Sequence[Running]:
        """Tell every attempt, in the order of names; what a killed shim left behind is killed on the way."""
        return await asyncio.to_thread(self._list)

    async def forget(self, name: str) -> None:
        """Remove the traces of an attempt that has ended; its log stays."""
        await asyncio.to_thread(self._forget, name)

    def lease_port(self) -> int:
        """Pick a loopback port that no attempt of ours has and that nobody listens on."""
        with self._leasing:
            now = clock.mono()
            self._leases = {port: until for port, until in self._leases.items() if until > now}
            taken = {seen.run.port for name in self._names() if (seen := self._read(name)) and seen.exit is None}
            for port in PORTS:
                if port not in taken and port not in self._leases and _free(port):
                    self._leases[port] = now + START_SECONDS  # until its run file tells
                    return port
        raise Driver(f"no free port between {PORTS.start} and {PORTS.stop}")

    def log_path(self, name: str) -> Path:
        """Where an attempt's output goes."""
        return self._logs / f"{name}.log"

    def _start(self, order: Order) -> None:
        if self._path(order.name, ".json").exists():  # promised before: a repetition
            return
        run = RunFile(
            name=order.name,
            uid=order.uid,
            attempt=order.attempt,
            boot_id=self._boot_id,
            shim_pid=0,  # the shim fills in its own
            shim_start_ticks=0,
            spec_hash=order.spec_hash,
            port=order.port,
            devices=order.devices,
            argv=order.argv,
            secret_file=str(self._path(order.name, ".secret")) if order.secret else "",
            log=str(self.log_path(order.name)),
            started_at=clock.now(),
        )
        place = {"{secret_file}": run.secret_file}
        handed = {
            "run": run,
            "argv": [_filled(word, place) for word in order.argv],
            "env": {key: _filled(value, place) for key, value in (_visible(order.devices) | order.env).items()},
            "cwd": order.cwd,
            "secret": order.secret,
        }
        answer = self._launch(order.name, msgspec.json.encode(handed))
        if answer == "held":  # somebody else was faster
            return
        if answer != "ok":
            raise Driver(f"the shim of {order.name} did not start: {answer or 'it died before it promised anything'}")

    def _launch(self, name: str, order: bytes) -> str:
        options = [word for kill in self._kills for word in ("--kill", kill)]
        options += ["--log-bytes", str(self._log_bytes)]
        argv = [sys.executable, "-I", "-S", shim.__file__, str(self._run), name, *options]
        inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}  # noqa: TID251 - handed on, not read
        try:
            self._run.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
            done = subprocess.run(  # noqa: S603 - our own file
                argv,
                input=order,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=inherited | {MARK: self._mark(name)},
                cwd="/",
                timeout=START_SECONDS,
                check=False,
                start_new_session=True,  # a Ctrl-C in our terminal must not reach it
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Driver(f"cannot start the shim of {name}: {error}") from error
        return done.stdout.decode()

    def _stop(self, name: str, grace: float) -> None:
        seen = self._read(name)
        if seen is None or seen.exit is not None or not seen.held:
            return
        deadline = clock.mono() + grace
        earlier = files.read(self._path(name, ".stop"))
        if earlier is None or float(earlier) > deadline:
            files.replace(self._path(name, ".stop"), str(deadline).encode())
        if processes.start_ticks(seen.run.shim_pid) == seen.run.shim_start_ticks:
            processes.send(seen.run.shim_pid, signal.SIGUSR1)

    def _list(self) -> Sequence[Running]:
        seen = [found for name in self._names() if (found := self._read(name)) is not None]
        memory = processes.memory_below({each.run.shim_pid for each in seen if each.held})
        return [self._running(each, memory.get(each.run.shim_pid, 0)) for each in seen]

    def _running(self, seen: _Seen, rss_bytes: int) -> Running:
        if seen.exit is not None:
            return Running(run=seen.run, phase=Phase.EXITED, exit=seen.exit)
        if not seen.held:
            left = self._kill_orphans(seen.run)
            return Running(run=seen.run, phase=Phase.STOPPING if left else Phase.LOST)
        started = Phase.RUNNING if seen.run.engine_pid else Phase.STARTING
        return Running(run=seen.run, phase=Phase.STOPPING if seen.asked_to_stop else started, rss_bytes=rss_bytes)

    def _kill_orphans(self, run: RunFile) -> bool:
        """Kill what still carries the mark of an attempt without a shim; tells whether anything did."""
        if run.boot_id != self._boot_id:
            return False
        pids = processes.marked(f"{MARK}={self._mark(run.name)}")
        for pid in pids:
            processes.send(pid, signal.SIGKILL)
        return bool(pids)

    def _forget(self, name: str) -> None:
        seen = self._read(name)
        if seen is not None and seen.exit is None and (seen.held or self._kill_orphans(seen.run)):
            raise Driver(f"{name} still runs; it cannot be forgotten")
        for suffix in (
            ".stop",
            ".secret",
            ".exit.json",
            ".json",
            ".lock",
        ):  # the run file late: what it names goes first
            self._path(name, suffix).unlink(missing_ok=True)
        self._prune_logs(name.rpartition("-")[0])

    def _prune_logs(self, uid: str) -> None:
        """Keep the logs of the last few attempts: a crash loop must not fill the disk either."""
        attempts = {path: int(path.stem.rpartition("-")[2]) for path in self._logs.glob(f"{uid}-*.log")}
        for path in sorted(attempts, key=lambda p: attempts[p])[:-KEPT_LOGS]:
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}.1").unlink(missing_ok=True)

    def _names(self) -> Sequence[str]:
        return sorted(path.name.removesuffix(".json") for path in self._run.glob("*-*.json") if _is_run_file(path.name))

    def _read(self, name: str) -> _Seen | None:
        """Read in this order: a shim locks before it writes the run file, and writes the exit file before it goes."""
        run = _decode(self._path(name, ".json"), RunFile)
        if run is None:
            return None
        held = _held(self._path(name, ".lock"))
        same_boot = run.boot_id == self._boot_id
        ours = same_boot and processes.start_ticks(run.shim_pid) == run.shim_start_ticks
        return _Seen(
            run=run,
            exit=_decode(self._path(name, ".exit.json"), ExitFile),
            held=held and ours,
            asked_to_stop=self._path(name, ".stop").exists(),
        )

    def _mark(self, name: str) -> str:
        return f"{self._run.resolve()}/{name}"

    def _path(self, name: str, suffix: str) -> Path:
        return self._run / f"{name}{suffix}"


def _visible(devices: Sequence[str]) -> dict[str, str]:
    """An engine sees the devices of its order and no others."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(device for device in devices if device != "cpu")}


def _filled(text: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def _is_run_file(name: str) -> bool:
    stem = name.removesuffix(".json")
    return not name.startswith(".") and not stem.endswith(".exit") and stem.rpartition("-")[2].isdigit()


def _decode(path: Path, kind: type[_File]) -> _File | None:
    data = files.read(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise Driver(f"{path} cannot be read: {error}") from error


def _held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
