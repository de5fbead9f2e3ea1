"""The supervisor with real processes: what dies comes back, nothing is refused meanwhile, and it ends in order."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.control.supervisor.watch import delay
from stoker.drivers import live, spool
from stoker.drivers.hosts import processes
from stoker.facts.ending import Outcome

RUN = """
import sys
from pathlib import Path
from stoker.base import log
from stoker.control.supervisor.watch import Settings, run
log.set_up()
standin = "tests.control.supervisor.standin"
sys.exit(run(Settings(state_dir=Path(sys.argv[1]), listen="127.0.0.1:0", admin="127.0.0.1:0", workers=2,
                      controller=standin, gateway=standin)))
"""


@pytest.mark.parametrize(
    ("failures", "ceiling", "wanted"),
    [(0, 2, 0), (1, 2, 0), (2, 2, 0.25), (3, 2, 0.5), (5, 2, 2), (5, 15, 2), (99, 15, 15)],
)
def test_the_first_restart_is_at_once_and_then_patience_grows(failures: int, ceiling: float, wanted: float) -> None:
    assert delay(failures, ceiling=ceiling) == wanted


class Running:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-c", RUN, folder], stderr=subprocess.PIPE, text=True)
        until(lambda: self.file.exists() and json.loads(self.file.read_text())["pid"] == self.process.pid)
        until(lambda: all(self.pids(name) for name in NAMES))
        self.described = json.loads(self.file.read_text())

    @property
    def file(self) -> Path:
        return self.folder / "run/supervisor.json"

    def pids(self, name: str) -> list[int]:
        path = self.folder / f"{name}.pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def ended(self, name: str) -> list[str]:
        path = self.folder / f"{name}.ended"
        return path.read_text().split() if path.exists() else []

    def lost(self) -> list[str]:
        paths = sorted((self.folder / "spool").glob("supervisor-*.seg"))
        found = [record for path in paths for record in spool.read(path).records]
        assert all(record.outcome is Outcome.LOST for record in found)
        return [record.id for record in found]

    def ask(self) -> int:
        host, _, port = self.described["listen"].rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", "/")
        return connection.getresponse().status


NAMES = ("controller", "gateway-0", "gateway-1")


def until(done: Callable[[], object]) -> None:
    while not done():
        time.sleep(0.02)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "run").mkdir()
    made = Running(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()
    for name in NAMES:
        for pid in made.pids(name):
            until(lambda pid=pid: not processes.start_ticks(pid))


@pytest.mark.e2e
def test_what_is_killed_comes_back_and_no_connection_is_refused(started: Running) -> None:
    for round_number in range(1, 4):
        for name in NAMES:
            pid = started.pids(name)[-1]
            os.kill(pid, signal.SIGKILL)  # what it had accepted is cut; what comes after its death is not
            until(lambda pid=pid: not processes.start_ticks(pid))
        for _ in range(5):
            assert started.ask() == 200
        until(lambda wanted=round_number + 1: all(len(started.pids(name)) == wanted for name in NAMES))

    expected = {f"{name}-{pid}-1" for name in NAMES[1:] for pid in started.pids(name)[:-1]}
    until(lambda: len(started.lost()) >= len(expected))
    assert sorted(started.lost()) == sorted(expected)
    assert live.read(started.folder / "run/gateway-0.live") is not None


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("number", "controller"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
)
def test_it_ends_gateways_first_and_the_controller_as_asked(started: Running, number: int, controller: str) -> None:
    started.process.send_signal(number)

    assert started.process.wait(30) == 0
    assert [started.ended(name) for name in NAMES] == [[controller], ["SIGTERM"], ["SIGTERM"]]
    assert not started.file.exists()


@pytest.mark.e2e
def test_a_second_supervisor_is_refused_by_name(started: Running) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "stoker.control.supervisor", "--state-dir", started.folder],
        capture_output=True,
        text=True,
        check=False,
    )

    assert second.returncode == 1
    assert f"another supervisor runs already with this state directory (pid {started.process.pid})" in second.stderr


@pytest.mark.e2e
def test_an_address_in_use_is_told(started: Running, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    listen = started.described["listen"]
    argv = [sys.executable, "-m", "stoker.control.supervisor", "--state-dir", other, "--listen", listen]
    second = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert second.returncode == 1
    assert f"cannot listen on {listen}" in second.stderr


@pytest.mark.e2e
def test_kill_9_of_the_supervisor_ends_its_children_and_the_next_one_takes_over(started: Running) -> None:
    before = {name: started.pids(name)[-1] for name in NAMES}
    started.process.kill()
    started.process.wait()

    for pid in before.values():
        until(lambda pid=pid: not processes.start_ticks(pid))
    assert [started.ended(name) for name in NAMES] == [["SIGHUP"], ["SIGTERM"], ["SIGTERM"]]

    next_one = Running(started.folder)
    try:
        until(lambda: all(len(next_one.pids(name)) == 2 for name in NAMES))
        assert next_one.ask() == 200
        until(lambda: len(next_one.lost()) == 2)  # what the dead ones had in flight
    finally:
        next_one.process.send_signal(signal.SIGTERM)
        assert next_one.process.wait(30) == 0
    assert (
        not (started.folder / "run").glob("*.live") or [p.name for p in (started.folder / "run").glob("*.live")] == []
    )


@pytest.mark.e2e
def test_memory_is_small(started: Running) -> None:
    status = Path(f"/proc/{started.process.pid}/status").read_text()
    mapped = Path(f"/proc/{started.process.pid}/maps").read_text()

    assert "VmRSS" in status
    assert not any(name in mapped for name in ("pydantic", "uvloop", "_sqlite3", "httptools"))
