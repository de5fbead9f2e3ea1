"""A disk that fills while requests run: the reserve is used, then they are refused by name, and it heals by itself."""

import contextlib
import http.client
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest
from tests.e2e.load import under_load
from tests.e2e.machine import Machine, machine

from stoker.facts.routes import open_callers, open_routes

REFUSED = "503 accounting_unavailable"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own needs root (tmpfs)")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(filler: Path) -> None:
    """Take every byte that is left, in smaller and smaller pieces; also what was given back meanwhile."""
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    finally:
        os.close(descriptor)


@dataclass
class Client:
    """One openai client that keeps the ids of what was answered."""

    made: Machine
    answered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sdk = openai.OpenAI(base_url=self.made.url, api_key=self.made.key, max_retries=0, timeout=30)

    def ask(self) -> str:
        """Ask once: nothing, or the status and code of the refusal; any other failure is raised."""
        try:
            raw = self._sdk.completions.with_raw_response.create(model="tiny", prompt="x", max_tokens=1)
        except openai.APIStatusError as error:
            return f"{error.status_code} {error.code}"
        self.answered.append(raw.headers["x-request-id"])
        return ""

    def use_up(self, filler: Path) -> int:
        """Write records, by cheap requests, until nothing more can be recorded; tells how many it took."""
        connection = http.client.HTTPConnection("127.0.0.1", self.made.port, timeout=30)
        for turn in range(100_000):
            if turn % 500 == 0:
                fill(filler)
                if accounting(self.made) <= {"refusing", "unmetered"}:
                    return turn
            connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {self.made.key}"})
            reply = connection.getresponse()
            reply.read()
            assert reply.status in (200, 503)
        raise AssertionError("the disk is full and requests are still recorded")


def accounting(made: Machine) -> set[str]:
    return {worker["accounting"] for worker in made.data("status")["gateways"]}


def condition(made: Machine) -> tuple[str, str]:
    found = made.condition("ig", "default", "Accounting")
    return found["status"], found["reason"]


def recorded(made: Machine) -> list[str]:
    items = made.data("usage", "--records", "--limit", "100000", "--since", "1h")["items"]
    return [r["request_id"] for r in items if r["path"] == "/v1/completions" and r["outcome"] != "rejected"]


def assert_whole(root: Path) -> None:
    """Nothing is corrupted: databases, routes and callers can be read."""
    for name in ("state.db", "ledger.db"):
        with contextlib.closing(sqlite3.connect(root / name)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert open_routes((root / "routes.json").read_bytes()).services
    assert open_callers((root / "callers.json").read_bytes()).callers


@pytest.mark.timeout(180)
def test_a_full_disk_refuses_with_a_name_and_heals_without_a_restart(small: Path, tiny_gguf: Path) -> None:
    filler = small / "filler"
    with machine(small / "state") as made:
        made.up("--model", str(tiny_gguf))
        pids = made.pids("stoker.gateway") + made.pids("stoker.control") + made.pids("llama_server")
        client = Client(made)
        assert client.use_up(filler) > 1000  # the reserve carried them
        assert client.ask() == REFUSED
        assert "cannot be recorded" in made.run("status").stderr
        made.wait("the controller says so", lambda: condition(made) == ("False", "DiskFull"))
        assert client.ask() == REFUSED
        assert_whole(made.root)
        filler.unlink()
        made.wait("it answers again", lambda: client.ask() == "", within=30)
        made.wait("the reserve is back", lambda: accounting(made) == {"ok"})
        made.wait("the controller says so", lambda: condition(made) == ("True", "Recording"))

        assert made.pids("stoker.gateway") + made.pids("stoker.control") + made.pids("llama_server") == pids
        made.wait("it is all recorded", lambda: sorted(recorded(made)) == sorted(client.answered))
        assert_whole(made.root)
        made.ok("key", "create", "later")


def test_unmetered_serves_on_and_comes_back_to_recording(small: Path, tiny_gguf: Path) -> None:
    filler = small / "filler"
    with machine(small / "state") as made:
        made.up("--model", str(tiny_gguf), "--unmetered")
        with under_load(made.url, made.key, "tiny", clients=2) as load:
            Client(made).use_up(filler)
            assert accounting(made) == {"unmetered"}
            assert "cannot be recorded" in made.run("status").stderr
            answers = len(load.answers)
            made.wait("it serves on", lambda: len(load.answers) > answers + 20)
            filler.unlink()
            made.wait("it records again", lambda: accounting(made) == {"ok"})

        assert load.failures == []
        assert_whole(made.root)


def test_what_is_killed_on_a_full_disk_comes_back(small: Path, tiny_gguf: Path) -> None:
    filler = small / "filler"
    with machine(small / "state") as made:
        made.up("--model", str(tiny_gguf))
        client = Client(made)
        client.use_up(filler)
        engines = made.pids("llama_server")
        for module in ("stoker.gateway", "stoker.control"):
            (old,) = made.pids(module)
            os.kill(old, signal.SIGKILL)
            made.wait(f"another {module}", lambda module=module, old=old: made.pids(module) not in ([], [old]))
        made.wait("the door is there", lambda: client.ask() in ("", REFUSED), within=30)
        filler.unlink()
        made.wait("it serves", lambda: client.ask() == "", within=30)
        made.wait("the controller works", lambda: made.run("key", "create", "later").returncode == 0)

        assert made.pids("llama_server") == engines
        assert made.replicas("tiny")[0]["status"]["restarts"] == 0
        assert_whole(made.root)
