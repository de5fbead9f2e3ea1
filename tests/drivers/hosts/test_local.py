"""Engines as real processes: what they get, how they end, and that nothing of them stays behind."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stoker.base.errors import Driver
from stoker.drivers.hosts import processes, shim
from stoker.drivers.hosts.base import Order
from stoker.drivers.hosts.local import MARK, LocalHost
from stoker.facts.observed import Phase, Running

pytestmark = [pytest.mark.anyio, pytest.mark.e2e]

TELL = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1], open(sys.argv[1]).read(), os.getcwd()]))"
BIG = """
import os, time
data = bytearray(40 << 20)
os.fork()
data[::4096] = data[::4096]
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for leave in (lambda: None, os.setpgrp, os.setsid):
    if not os.fork():
        leave()
        if not os.fork():
            time.sleep(600)
        os._exit(0)
print("up", flush=True)
time.sleep(float(sys.argv[1]))
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    for seen in await made.list():
        await made.stop(seen.run.name, grace=0)
    await until(made, lambda seen: seen.phase in (Phase.EXITED, Phase.LOST))


def order(*argv: str, **changes: object) -> Order:
    given = {"uid": "abc", "attempt": 1, "port": 20_001, "spec_hash": "hash", "argv": argv} | changes
    return Order(**given)  # type: ignore[arg-type]


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code, *arguments)


async def until(host: LocalHost, done: Callable[[Running], bool]) -> list[Running]:
    while True:
        seen = list(await host.list())
        if all(done(each) for each in seen):
            return seen
        await asyncio.sleep(0.02)


async def exited(host: LocalHost) -> Running:
    (seen,) = await until(host, lambda each: each.phase is Phase.EXITED)
    return seen


async def printed(host: LocalHost, words: str) -> None:
    while words not in host.log_path("abc-1").read_text():  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.02)


def of(host: LocalHost, tmp_path: Path) -> list[int]:
    return list(processes.marked(f"{MARK}={(tmp_path / 'run').resolve()}/abc-1"))


async def test_an_engine_gets_its_whole_environment_and_its_secret_by_file(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_TEST_LEAK", "must not arrive")
    await host.start(
        order(
            *python(TELL, "{secret_file}"),
            secret="s3cret",
            env={"A": "1"},
            cwd=str(tmp_path),
            devices=("GPU-1", "GPU-2"),
        )
    )
    seen = await exited(host)

    environment, secret_file, secret, cwd = json.loads(host.log_path("abc-1").read_text())
    assert {key: environment[key] for key in ("A", "CUDA_VISIBLE_DEVICES")} == {
        "A": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
    }
    assert set(environment) <= {"A", "CUDA_VISIBLE_DEVICES", "PATH", "HOME", "LANG", "LC_CTYPE", MARK}
    assert (secret, cwd, secret_file) == ("s3cret", str(tmp_path), seen.run.secret_file)
    for path in (secret_file, seen.run.log, tmp_path / "run/abc-1.json"):
        assert os.stat(path).st_mode & 0o777 == 0o600  # noqa: PTH116
    await host.forget("abc-1")
    assert list((tmp_path / "run").iterdir()) == []
    assert host.log_path("abc-1").exists()


@pytest.mark.parametrize(
    ("code", "code_wanted", "signal_wanted"),
    [("raise SystemExit(7)", 7, None), ("import os; os.kill(os.getpid(), 11)", None, 11), ("", 0, None)],
)
async def test_how_it_ended_is_kept(
    host: LocalHost, code: str, code_wanted: int | None, signal_wanted: int | None
) -> None:
    await host.start(order(*python(code)))

    ended = (await exited(host)).exit

    assert ended is not None
    assert (ended.code, ended.signal, ended.error) == (code_wanted, signal_wanted, "")


async def test_a_program_that_is_not_there_is_an_exit_with_a_reason(host: LocalHost) -> None:
    await host.start(order("/no/such/engine"))

    ended = (await exited(host)).exit

    assert ended is not None
    assert (ended.code, ended.error) == (None, "/no/such/engine: No such file or directory")


async def test_sigterm_is_followed_by_sigkill_after_the_grace(host: LocalHost) -> None:
    await host.start(order(*python(STUBBORN)))
    await printed(host, "up")

    await host.stop("abc-1", grace=0.3)
    ended = (await exited(host)).exit

    assert ended is not None
    assert ended.signal == signal.SIGKILL


async def test_the_earliest_deadline_counts(host: LocalHost) -> None:
    await host.start(order(*python(STUBBORN)))
    await printed(host, "up")

    await host.stop("abc-1", grace=600)
    await host.stop("abc-1", grace=0.1)
    await host.stop("abc-1", grace=600)

    assert (await exited(host)).exit is not None


@pytest.mark.parametrize("how", ["by itself", "stopped", "killed"])
async def test_nothing_of_the_subtree_is_left(host: LocalHost, tmp_path: Path, how: str) -> None:
    """Children, also those that left group or session and lost their parents, are gone before EXITED is told."""
    await host.start(order(*python(FAMILY, "0.3" if how == "by itself" else "600")))
    await printed(host, "up")
    while len(of(host, tmp_path)) < 4 + (how != "by itself"):  # shim, engine and three grandchildren  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    (seen,) = await host.list()
    if how == "stopped":
        await host.stop("abc-1", grace=0.1)
    if how == "killed":
        os.kill(seen.run.engine_pid, signal.SIGKILL)

    await exited(host)

    assert [pid for pid in of(host, tmp_path) if pid != seen.run.shim_pid] == []


async def test_memory_of_the_whole_subtree_is_counted(host: LocalHost) -> None:
    await host.start(order(*python(BIG)))
    while host.log_path("abc-1").read_text().count("up") < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)

    (seen,) = await host.list()

    assert seen.rss_bytes > 70 << 20


LOUD = """
import sys, time
for number in range(4000):
    print(f"line {number:06d} " + "x" * 60, flush=True)
print("up", flush=True)
time.sleep(600)
"""


async def test_an_engine_that_logs_without_end_keeps_its_newest_lines_only(tmp_path: Path) -> None:
    host = LocalHost(tmp_path, log_bytes=64 << 10)
    await host.start(order(*python(LOUD)))
    log = host.log_path("abc-1")
    older = log.with_name("abc-1.log.1")
    while not older.exists() or log.stat().st_size > 64 << 10:  # noqa: ASYNC110 - a file
        await asyncio.sleep(0.05)
    await host.stop("abc-1", grace=0)
    await exited(host)

    assert "line 003999" in older.read_text() + log.read_text()
    assert "line 000000" not in older.read_text() + log.read_text()


async def test_only_the_logs_of_the_last_attempts_stay(host: LocalHost, tmp_path: Path) -> None:
    for attempt in range(1, 13):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"abc-{attempt}.log").write_text("x")
    await host.start(order(*python("pass"), attempt=13))
    await exited(host)
    await host.forget("abc-13")

    kept = {path.name for path in (tmp_path / "logs").glob("abc-*.log")}
    assert kept == {f"abc-{attempt}.log" for attempt in range(6, 14)}


async def test_a_second_host_adopts_what_the_first_started(host: LocalHost, tmp_path: Path) -> None:
    await host.start(order(*python("import time; time.sleep(600)")))
    (first,) = await until(host, lambda each: each.phase is Phase.RUNNING)

    other = LocalHost(tmp_path)

    assert [(each.run, each.phase) for each in await other.list()] == [(first.run, Phase.RUNNING)]
    await other.start(order("/something/else"))
    assert [each.run for each in await other.list()] == [first.run]


async def test_another_boot_or_a_reused_pid_is_lost_and_nobody_is_killed_for_it(
    host: LocalHost, tmp_path: Path
) -> None:
    await host.start(order(*python("import time; time.sleep(600)")))
    (seen,) = await until(host, lambda each: each.phase is Phase.RUNNING)
    path = tmp_path / "run/abc-1.json"
    good = path.read_bytes()
    path.write_text(json.dumps(json.loads(good) | {"boot_id": "another boot"}))

    (lost,) = await host.list()

    assert lost.phase is Phase.LOST
    assert processes.start_ticks(seen.run.engine_pid) == seen.run.engine_start_ticks
    path.write_bytes(good)
    assert [each.phase for each in await host.list()] == [Phase.RUNNING]


async def test_a_kill_of_the_shim_by_hand_is_a_stop(host: LocalHost) -> None:
    await host.start(order(*python("import time; time.sleep(600)")))
    (seen,) = await until(host, lambda each: each.phase is Phase.RUNNING)

    os.kill(seen.run.shim_pid, signal.SIGTERM)
    ended = (await exited(host)).exit

    assert ended is not None
    assert ended.signal == signal.SIGTERM


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    host = LocalHost(tmp_path)

    with pytest.raises(Driver, match="cannot start the shim"):
        await host.start(order("/bin/true"))

    assert await host.list() == []


async def test_a_port_in_use_is_not_leased(host: LocalHost) -> None:
    expected = host.lease_port()
    other = LocalHost(Path("/nonexistent"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", expected))
        assert other.lease_port() != expected


def test_the_shim_needs_the_standard_library_only() -> None:
    source = Path(shim.__file__).read_text()

    assert "stoker." not in source.replace("stoker here", "").split('"""', 2)[2]
