"""Experiment B: kill -9 of shim, controller and supervisor at every point of an attempt's life.

Whatever dies wherever: the next controller sees the truth within one look, there is never a second engine, and nothing
of an attempt that is told as gone still runs. The kill is done by the shim itself at the named point, so each case is
exact and none depends on timing.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from stoker.base.errors import Driver
from stoker.drivers.hosts import processes
from stoker.drivers.hosts.base import Order
from stoker.drivers.hosts.local import MARK, LocalHost
from stoker.facts.observed import Phase, Running

pytestmark = pytest.mark.e2e

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
CONTROLLER = """
import asyncio, os, sys
from pathlib import Path
from stoker.base.errors import Driver
from stoker.drivers.hosts.local import LocalHost
from tests.drivers.hosts.test_survival import order, wait
root, point, victim = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
pid = {"shim": 0, "controller": os.getpid(), "supervisor": os.getppid()}[victim]

async def main():
    host = LocalHost(root, kills=[f"{point}:{pid}"])
    try:
        await host.start(order())
    except Driver:
        pass
    (root / "answered").touch()
    if sys.argv[4] == "stop":
        await wait(lambda: "up" in host.log_path("abc-1").read_text())
        await host.stop("abc-1", grace=0.2)
        (root / "asked").touch()
    await asyncio.sleep(600)

asyncio.run(main())
"""
SUPERVISOR = """
import signal, sys
from pathlib import Path
from stoker.drivers.hosts import children
log = Path(sys.argv[1], "controller.log")
children.start("tests.drivers.hosts.run", sys.argv[1:], log=log, on_death=signal.SIGKILL)
signal.pause()
"""

BEFORE_PROMISE = ("started", "daemonized", "locked", "before_run_file")
PROMISED = ("after_run_file", "before_fork", "after_fork", "after_exec", "running")
ENDING = ("stopping", "killing", "engine_ended", "before_exit_file", "after_exit_file")


def order() -> Order:
    argv = (sys.executable, "-S", "-c", STUBBORN)
    return Order(uid="abc", attempt=1, port=20_001, spec_hash="hash", argv=argv, secret="s3cret")


async def wait(done: Callable[[], object]) -> None:
    while not done():  # noqa: ASYNC110 - processes and files set no events
        await asyncio.sleep(0.02)


def marked(root: Path) -> Sequence[int]:
    return processes.marked(f"{MARK}={(root / 'run').resolve()}/abc-1")


def expected(victim: str, point: str) -> Phase | None:
    """What the next controller must see; None: no attempt at all."""
    if victim != "shim":  # the shim needs nobody
        return Phase.EXITED if point in ENDING else Phase.RUNNING
    if point in BEFORE_PROMISE:
        return None
    return Phase.EXITED if point == "after_exit_file" else Phase.LOST


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "logs").mkdir()
    yield tmp_path
    for pid in marked(tmp_path):
        os.kill(pid, 9)


@pytest.mark.parametrize("victim", ["shim", "controller", "supervisor"])
@pytest.mark.parametrize("point", [*BEFORE_PROMISE, *PROMISED, *ENDING])
def test_whatever_dies_the_next_controller_sees_the_truth(root: Path, victim: str, point: str) -> None:
    ask = "stop" if point in ENDING else "start"
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, root, point, victim, ask])
    try:
        asyncio.run(asyncio.wait_for(_judge(root, victim, point, supervisor), 20))
    finally:
        supervisor.kill()
        supervisor.wait()


async def _judge(root: Path, victim: str, point: str, supervisor: subprocess.Popen[bytes]) -> None:
    if victim == "supervisor":
        await wait(lambda: supervisor.poll() is not None)
    elif victim == "shim":
        await wait((root / "answered").exists)
    host = LocalHost(root)
    wanted = expected(victim, point)
    if point in ENDING:  # it runs on until it is asked to stop
        seen = await _until(host, lambda found: [each.phase for each in found] == [wanted])
    else:
        seen = await _until(host, lambda found: [each.phase for each in found] == ([wanted] if wanted else []))

    if wanted is Phase.RUNNING:
        await host.start(order())  # the next controller asks again: nothing changes
        assert [each.run for each in await host.list()] == [each.run for each in seen]
        assert set(marked(root)) == {seen[0].run.shim_pid, seen[0].run.engine_pid}
        return
    await wait(lambda: not marked(root))
    if seen:
        await host.forget("abc-1")
    await host.start(order())
    (fresh,) = await _until(host, lambda found: [each.phase for each in found] == [Phase.RUNNING])
    assert set(marked(root)) == {fresh.run.shim_pid, fresh.run.engine_pid}


async def _until(host: LocalHost, done: Callable[[Sequence[Running]], bool]) -> Sequence[Running]:
    while not done(seen := await host.list()):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return seen


def test_a_full_disk_starts_nothing_and_says_so(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        asyncio.run(_full(tmp_path))
    finally:
        for pid in marked(tmp_path):
            os.kill(pid, 9)
        subprocess.run(["umount", "-l", tmp_path], check=True)


async def _full(root: Path) -> None:
    for name in ("run", "logs"):
        (root / name).mkdir()
    with (root / "ballast").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                break
    host = LocalHost(root)
    with pytest.raises(Driver, match="No space left"):
        await host.start(order())
    assert list(await host.list()) == []
    await wait(lambda: not marked(root))
    (root / "ballast").unlink()
    await host.start(order())
    await _until(host, lambda found: [each.phase for each in found] == [Phase.RUNNING])
    with (root / "ballast").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4096)
            except OSError:
                break
    with pytest.raises(Driver, match="No space left"):  # a stop that cannot be written down is not promised
        await host.stop("abc-1", grace=0)
    (root / "ballast").unlink()
    await host.stop("abc-1", grace=0)
    await _until(host, lambda found: [each.phase for each in found] == [Phase.EXITED])
