"""Live workers on one socket: their counts add up, they never over-admit together, and all obey a revocation."""

import contextlib
import hashlib
import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from stoker.drivers import live, spool
from stoker.facts.record import Record
from stoker.facts.routes import Caller, Callers, Endpoint, Key, Limits, Routes, Service, State, Target, seal

pytestmark = pytest.mark.e2e
KEPT, LIMITED, SLOTS, AT_ONCE = "sk-kept", "sk-limited", 3, 2
ANSWER = (
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":5,"completion_tokens":2}}'
)


class Engine:
    """Answers after a moment, and remembers how many requests it had at once."""

    def __init__(self) -> None:
        self.running = self.most = self.served = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._socket = bound()
        self.origin = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        self._socket.settimeout(0.1)
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                threading.Thread(target=self._serve, args=(self._socket.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        with contextlib.suppress(OSError), connection:
            while connection.recv(65536):
                with self._lock:
                    self.running += 1
                    self.served += 1
                    self.most = max(self.most, self.running)
                time.sleep(0.01)
                with self._lock:
                    self.running -= 1
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
                connection.sendall(head + ANSWER)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()


def bound() -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    return listener


def callers(generation: int, *, revoked: bool = False) -> bytes:
    def key(text: str, *, revoked: bool = False) -> Key:
        return Key(id=text, sha256=hashlib.sha256(text.encode()).hexdigest(), revoked=revoked)

    kept = Caller(name="kept", keys=(key(KEPT),))
    limited = Caller(name="limited", keys=(key(LIMITED, revoked=revoked),), limits=Limits(concurrent=AT_ONCE))
    return seal(Callers(generation=generation, callers=(kept, limited)))


class Pair:
    """Two workers, or more, and their sockets."""

    def __init__(self, folder: Path, engine: Engine, count: int = 2) -> None:
        self.folder = folder
        (folder / "keys").mkdir()
        spec = Endpoint(name="e", incarnation="e-1", state=State.SERVE, origin=engine.origin, slots=SLOTS, queue=200)
        service = Service(name="default/m", models=("m",), targets=(Target(endpoints=("e",)),))
        (folder / "routes.json").write_bytes(seal(Routes(generation=1, services=(service,), endpoints=(spec,))))
        (folder / "callers.json").write_bytes(callers(1))
        self.public = bound()
        self.port = self.public.getsockname()[1]
        self.admin = [bound() for _ in range(count)]
        self.workers = [self._launch(number) for number in range(count)]

    def _launch(self, number: int) -> "subprocess.Popen[bytes]":
        public, admin = self.public.fileno(), self.admin[number].fileno()
        argv = [sys.executable, "-m", "stoker.gateway", "--state-dir", str(self.folder), "--worker", str(number)]
        argv += ["--listen-fd", str(public), "--admin-fd", str(admin)]
        return subprocess.Popen(argv, pass_fds=(public, admin), stderr=subprocess.DEVNULL)

    def ask(self, key: str) -> int:
        """Ask once, on a connection of its own: whichever worker takes it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
            connection.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
            reply = connection.getresponse()
            reply.read()
            return reply.status
        finally:
            connection.close()

    def many(self, key: str, count: int) -> list[int]:
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(self.ask, [key] * count))

    def metric(self, worker: int, name: str) -> float:
        """Sum the series of one metric of one worker."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin[worker].getsockname()[1], timeout=10)
        try:
            connection.request("GET", "/metrics")
            page = connection.getresponse().read().decode()
        finally:
            connection.close()
        return sum(float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", page, re.MULTILINE))

    def records(self) -> list[Record]:
        segments = (self.folder / "spool").glob(f"*{spool.SUFFIX}")
        return [record for path in segments for record in spool.read(path, limit=10**9).records]

    def wait_for_callers(self, generation: int) -> None:
        """Wait as the controller does: until each live worker says that it obeys."""
        for number in range(len(self.workers)):
            while (state := live.read(self.folder / "run" / f"gateway-{number}.live")) is None or (
                state.callers_generation < generation
            ):
                assert self.workers[number].poll() is None
                time.sleep(0.02)

    def replace(self, number: int, how: signal.Signals) -> None:
        """End a worker and start another one under its number, as the supervisor does."""
        self.workers[number].send_signal(how)
        self.workers[number].wait(20)
        (self.folder / "run" / f"gateway-{number}.live").unlink()
        self.workers[number] = self._launch(number)
        self.wait_for_callers(1)

    def stop(self) -> None:
        for worker in self.workers:
            worker.terminate()
        codes = [worker.wait(20) for worker in self.workers]
        for listener in (self.public, *self.admin):
            listener.close()
        assert set(codes) == {0}


@contextmanager
def pair(folder: Path, count: int = 2) -> Iterator[tuple[Pair, Engine]]:
    engine = Engine()
    both = Pair(folder, engine, count)
    try:
        both.wait_for_callers(1)
        yield both, engine
    finally:
        both.stop()
        engine.stop()


def workers_of(records: list[Record]) -> Counter[str]:
    return Counter(record.id[: len("gateway-0")] for record in records)


@pytest.mark.timeout(120)
def test_slots_are_never_overfilled_and_counters_add_up(tmp_path: Path) -> None:
    with pair(tmp_path) as (both, engine):
        answers = both.many(KEPT, 200)
        counted = [both.metric(worker, "stoker_requests_total") for worker in (0, 1)]
        tokens = [both.metric(worker, "stoker_tokens_total") for worker in (0, 1)]

    records = both.records()
    assert answers == [200] * 200
    assert engine.served == 200
    assert engine.most == SLOTS  # full, and never more
    assert sum(counted) == len(records) == len({record.id for record in records}) == 200
    assert sum(tokens) == 200 * (5 + 2)
    assert workers_of(records) == {"gateway-0": counted[0], "gateway-1": counted[1]}
    assert min(counted) > 0  # both were asked, or this shows nothing


@pytest.mark.timeout(120)
def test_counters_of_four_workers_add_up_over_their_lives(tmp_path: Path) -> None:
    """Each page only ever rises, whichever way a worker ended, and all pages together hold every answer once."""

    def shown(four: Pair) -> list[float]:
        return [four.metric(worker, "stoker_requests_total") for worker in range(4)]

    with pair(tmp_path, 4) as (four, _):
        asked, before = 0, [0.0] * 4
        for number, how in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
            assert four.many(KEPT, 60) == [200] * 60
            asked += 60
            four.replace(number, how)
            now = shown(four)
            assert sum(now) == asked
            assert all(new >= old for new, old in zip(now, before, strict=True))
            before = now


@pytest.mark.timeout(120)
def test_a_callers_limit_holds_over_both(tmp_path: Path) -> None:
    with pair(tmp_path) as (both, engine):
        answers = Counter(both.many(LIMITED, 200))

    records = both.records()
    assert set(answers) == {200, 429}
    assert engine.most <= AT_ONCE
    assert answers[429] == sum(record.detail == "concurrent" for record in records)
    assert min(workers_of(records).values()) > 0
    assert len(workers_of(records)) == 2


@pytest.mark.timeout(120)
def test_a_revoked_key_is_refused_by_both(tmp_path: Path) -> None:
    with pair(tmp_path) as (both, engine):
        assert both.ask(LIMITED) == 200
        fresh = tmp_path / "callers.new"
        fresh.write_bytes(callers(2, revoked=True))
        fresh.replace(tmp_path / "callers.json")
        both.wait_for_callers(2)
        served = engine.served
        refused = both.many(LIMITED, 100)
        assert both.ask(KEPT) == 200

    assert refused == [401] * 100
    assert engine.served == served + 1
    assert len(workers_of([record for record in both.records() if record.status == 401])) == 2
