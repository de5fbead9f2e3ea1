"""The door: nobody gets an answer without a key, whatever is started, stopped, missing or damaged behind it."""

import contextlib
import http.client
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest
from tests.e2e.machine import Machine, free_port
from tests.e2e.manifests import gateway, scripted, service, text

from stoker.base import clock

CLOSED = (
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("GET", "/metrics"),
    ("GET", "/live"),
    ("GET", "/docs"),
    ("POST", "/"),
    ("DELETE", "/healthz"),
    ("OPTIONS", "/v1/models"),
)
OPEN = (("GET", "/"), ("HEAD", "/"), ("GET", "/healthz"), ("GET", "/readyz"))
GUESSES = (
    {},
    {"authorization": "Bearer "},
    {"authorization": "Bearer sk-guess"},
    {"x-api-key": "sk-guess", "x-stoker-caller": "me"},
    {"x-stoker-probe": "e1;e1-1;9999999999;00"},
)


@dataclass
class Prober:
    """Knocks without pause, without a key, and keeps what it was told."""

    port: int
    told: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    unreached: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def knock(self) -> None:
        turn = 0
        while not self.over.is_set():
            method, path = (*CLOSED, *OPEN)[turn % (len(CLOSED) + len(OPEN))]
            try:
                status = ask(self.port, method, path, GUESSES[turn % len(GUESSES)])
            except (OSError, http.client.HTTPException) as error:
                self.unreached[type(error).__name__] += 1
            else:
                self.told[method, path, status] += 1
            clock.sleep(0.005)  # each knock leaves a port in TIME_WAIT; without a rest other tests find none
            turn += 1

    def assert_closed(self) -> None:
        """Every answer is a 401, or it is one of the four that everybody gets."""
        let_in = {(method, path, status): n for (method, path, status), n in self.told.items() if status != 401}
        allowed = {(method, path) for method, path, status in let_in if (method, path) not in OPEN}
        assert allowed == set(), let_in
        assert {status for _, _, status in let_in} <= {200, 503}  # 503: /readyz


def ask(port: int, method: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        body = b'{"model":"tiny","messages":[],"prompt":"x","input":"x"}' if method == "POST" else None
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


@contextlib.contextmanager
def probing(port: int, *, threads: int = 2) -> Iterator[Prober]:
    prober = Prober(port)
    running = [threading.Thread(target=prober.knock) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield prober
    finally:
        prober.over.set()
        for thread in running:
            thread.join(timeout=30)


def damage(name: str) -> Callable[[Path], None]:
    def cut(root: Path) -> None:
        whole = (root / name).read_bytes()
        (root / name).write_bytes(whole[: len(whole) // 2])

    return cut


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


def forge(root: Path) -> None:
    """Somebody writes a caller with a key of its own, and does not know the checksum."""
    (root / "callers.json").write_bytes(b'{"generation":99,"callers":[{"name":"me","keys":[]}]}')


def nothing(root: Path) -> None:
    assert root.exists()


@pytest.mark.timeout(150)
@pytest.mark.parametrize("turns", [25, pytest.param(100, marks=pytest.mark.optin)])
def test_a_worker_alone_never_answers_without_a_key_over_its_starts_and_stops(fresh: Machine, turns: int) -> None:
    """It binds the port itself. Each turn it finds its files whole, cut, gone or forged; some are damaged meanwhile."""
    fresh.start()
    fresh.ok("apply", "-f", "-", stdin=text(gateway(), scripted("tiny"), service("tiny")))
    fresh.wait("ready", lambda: fresh.condition("ms", "tiny", "RoutingReady")["status"] == "True")
    fresh.down()
    kept = {name: (fresh.root / name).read_bytes() for name in ("routes.json", "callers.json")}
    port = free_port()
    before = (nothing, remove("callers.json"), remove("routes.json"), damage("callers.json"), damage("routes.json"))
    meanwhile = (nothing, damage("callers.json"), remove("callers.json"), forge, damage("routes.json"))
    served = 0
    with probing(port) as prober:
        for turn in range(turns):
            for name, data in kept.items():
                (fresh.root / name).write_bytes(data)
            before[turn % 5](fresh.root)
            with worker(fresh.root, port) as process:
                healthy(port)
                served += ask(port, "GET", "/v1/models", {"authorization": f"Bearer {fresh.key}"}) == 200
                for name, data in kept.items():
                    (fresh.root / name).write_bytes(data)
                meanwhile[turn // 5 % 5](fresh.root)
                process.send_signal(signal.SIGKILL if turn % 2 else signal.SIGTERM)

    prober.assert_closed()
    assert sum(prober.told.values()) > turns
    assert served == turns * 3 // 5  # whoever has a key is let in wherever the callers can be read


@contextlib.contextmanager
def worker(root: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    argv = [sys.executable, "-m", "stoker.gateway", "--state-dir", str(root), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
            process.wait(timeout=20)
        finally:
            process.kill()


def healthy(port: int) -> None:
    for _ in range(400):
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(port, "GET", "/healthz", {}) == 200:
                return
        clock.sleep(0.02)
    raise AssertionError("the worker did not start to listen")


def test_no_connection_is_refused_while_workers_are_replaced(fresh: Machine) -> None:
    """The supervisor holds the socket: whoever knocks in a gap waits, and the next worker answers with its policy."""
    fresh.start()
    gone: list[int] = []
    with probing(fresh.port) as prober:
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            fresh.wait("a worker runs", lambda: set(fresh.pids("stoker.gateway")) - set(gone))
            (pid,) = set(fresh.pids("stoker.gateway")) - set(gone)
            healthy(fresh.port)
            os.kill(pid, number)
            gone.append(pid)
            healthy(fresh.port)

    prober.assert_closed()
    assert prober.unreached["ConnectionRefusedError"] == 0
    # A killed worker takes along what it had accepted; nothing else may go unanswered.
    assert set(prober.unreached) <= {"ConnectionResetError", "RemoteDisconnected", "BadStatusLine"}
    assert ("GET", "/v1/models", 401) in prober.told


def test_policy_that_is_lost_or_damaged_stays_in_force_and_is_written_again(running: Machine) -> None:
    client = openai.OpenAI(base_url=running.url, api_key=running.key, max_retries=0)

    def served() -> bool:
        return bool(client.completions.create(model="tiny", prompt="x", max_tokens=1).choices)

    with probing(running.port, threads=1) as prober:
        for spoil in (damage("routes.json"), damage("callers.json"), remove("routes.json"), remove("callers.json")):
            before = _restorations(running)
            spoil(running.root)
            for _ in range(5):
                assert served()
            running.wait("written again", lambda before=before: _restorations(running) > before, within=40)
        running.wait("in force", lambda: running.condition("ig", "default", "Ready")["status"] == "True")
        assert served()

    prober.assert_closed()


def _restorations(made: Machine) -> int:
    return made.ok("events").count("PolicyRestored")


def test_a_gateway_that_refuses_its_newest_routes_says_so_while_the_last_good_ones_serve(running: Machine) -> None:
    """The controller is held, so that nobody repairs the file; what it then sees is the condition."""
    client = openai.OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
    (controller,) = running.pids("stoker.control")
    os.kill(controller, signal.SIGSTOP)
    try:
        remove("callers.json")(running.root)
        damage("routes.json")(running.root)
        clock.sleep(0.6)
        assert client.completions.create(model="tiny", prompt="x", max_tokens=1).choices
        page = _metrics(running.admin)
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=running.url, api_key=secrets.token_hex(8), max_retries=0).models.list()
    finally:
        os.kill(controller, signal.SIGCONT)

    assert 'stoker_routes_refused{worker="0"} 1' in page
    running.wait("written again", lambda: 'stoker_routes_refused{worker="0"} 0' in _metrics(running.admin))


def _metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()
