"""The simulated engine as a process: its start, its times, its faults, and what the planner reads from it."""

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
from tests.models import tiny

from stoker.rehearse.faults import FAULTS
from stoker.rehearse.script import parse

pytestmark = pytest.mark.e2e
RIG = {
    "kv_cache_tokens": 6400,
    "sequences": 4,
    "batch_tokens": 512,
    "context_tokens": 4096,
    "linear": {"base_seconds": 0.004, "per_prefill_token_seconds": 0.0001},
    "phases": {"load_seconds": 20, "compile_seconds": 10},
}


@dataclass
class Engine:
    folder: Path
    words: tuple[str, ...] = ()
    log: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        (self.folder / "rig.json").write_text(json.dumps(RIG))
        self.script = self.folder / "script.json"
        if not self.script.exists():
            self.script.write_text("{}")
        argv = [sys.executable, "-m", "stoker.rehearse", "--port", "0", "--rig", str(self.folder / "rig.json")]
        argv += ["--speed", "20", "--script", str(self.script), *self.words]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if "listening on " in line:
                self.port = int(line.partition("listening on ")[2].partition(",")[0].rpartition(":")[2])
                break
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def play(self, **script: object) -> None:
        fresh = self.script.with_suffix(".new")
        fresh.write_text(json.dumps(script))
        fresh.replace(self.script)

    def get(self, path: str, body: object = None, *, timeout: float = 20) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body)
            connection.request("POST" if data else "GET", path, data)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def chat(self, text: str = "hello there", **more: object) -> tuple[int, str]:
        return self.get("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **more})

    def ends(self) -> str:
        assert self.process.wait(10) == 1
        assert self.process.stderr is not None
        return self.process.stderr.read()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture(autouse=True)
def calm(request: pytest.FixtureRequest) -> None:
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").play()


def test_it_starts_in_phases_and_counts_what_is_cached(engine: Engine) -> None:
    assert [line for line in engine.log if "100% Completed" in line]
    assert [line for line in engine.log if "GPU KV cache size: 6,400 tokens" in line]
    words = " ".join(f"w{i}" for i in range(200))
    cached = []
    for more in ("", " and more of it"):
        status, body = engine.chat(words + more, max_tokens=8, ignore_eos=True)
        assert status == 200
        usage = json.loads(body)["usage"]
        assert usage["completion_tokens"] == 8
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == 0
    assert 160 <= cached[1] <= 208
    page = engine.get("/metrics")[1]
    assert "vllm:prefix_cache_hits_total" in page
    assert 'kv_cache_size_tokens="6400"' in page


def test_a_request_that_can_never_fit_is_refused(engine: Engine) -> None:
    status, body = engine.chat("hi", max_tokens=4096, ignore_eos=True)
    assert status == 400
    assert "4096 are the most" in body


@pytest.mark.parametrize(
    ("script", "asked", "status", "told"),
    [
        ({"endless_thinking": True}, {"max_tokens": 30}, 200, '"reasoning_tokens":30'),
        (
            {"ignore_schema": True},
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
            200,
            "The stoker",
        ),
        ({"ready_after_seconds": 3600}, {}, 503, "not ready yet"),
        ({"repeat_above_running": -1}, {"max_tokens": 6}, 200, "the the the"),
        ({"status": 429}, {}, 429, "scripted refusal"),
        ({"model": "other"}, {}, 200, '"model":"other"'),
    ],
)
def test_faults_of_an_answer(engine: Engine, script: dict, asked: dict, status: int, told: str) -> None:
    engine.play(**script)
    assert (found := engine.chat(**asked))[0] == status
    assert told in found[1]
    assert engine.get("/health")[0] == 200


def test_health_may_be_slow_while_tokens_flow(engine: Engine) -> None:
    engine.play(health_seconds=30)
    with pytest.raises(TimeoutError):
        engine.get("/health", timeout=0.5)
    assert engine.chat()[0] == 200


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ({"memory_error_after_seconds": 0.1}, "out of memory"),
        ({"poison_schema": "evil"}, "could not compile the grammar"),
    ],
)
def test_faults_that_end_it(tmp_path: Path, script: dict, told: str) -> None:
    with Engine(tmp_path) as engine:
        engine.play(**script)
        schema = {"type": "json_schema", "json_schema": {"schema": {"pattern": "evil"}}}
        with contextlib.suppress(http.client.HTTPException, ConnectionError):  # it dies while we ask
            engine.chat(response_format=schema)
        assert told in engine.ends()


def test_a_crash_loop_never_listens(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"crash_at_start": true}')
    with Engine(tmp_path) as engine:
        assert engine.process.wait(10) == 1
        assert "failed to start" in engine.log[-1]


def test_it_leaks_when_told_and_stops_when_told_otherwise(engine: Engine) -> None:
    def resident() -> int:
        text = Path(f"/proc/{engine.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) // 1024

    before = resident()
    engine.play(memory_growth_bytes_per_second=200e6)
    for _ in range(100):
        if resident() > before + 60:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("it does not grow")
    engine.play()


def test_a_wrong_fault_file_is_refused_and_the_last_good_one_holds(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        engine.play(status=429)
        assert engine.chat()[0] == 429
        engine.play(statsu=503)
        assert engine.chat()[0] == 429
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.stderr is not None
        assert "statsu" in engine.process.stderr.read()


def test_every_fault_that_is_documented_can_be_asked_for() -> None:
    for fault in FAULTS:
        assert parse(f"{{{fault.members.replace('429 or 503', '429')}}}".encode())
    assert len(FAULTS) >= 21


def test_the_planner_reads_it_like_a_real_engine(tmp_path: Path) -> None:
    """A plan becomes an engine; what that engine says at its start and of itself is what the plan said."""
    made = tiny.make(tmp_path / "model")
    rig = tmp_path / "rig.json"
    stoker = [sys.executable, "-m", "stoker.cli.main", "--state-dir", str(tmp_path / "state")]
    words = ["rehearse", "engine", str(made.folder), "--gpu", "h200", "--context", "2048", "--write", str(rig)]
    assert subprocess.run([*stoker, *words], check=False, capture_output=True).returncode == 0
    planned = json.loads(rig.read_text())
    argv = [sys.executable, "-m", "stoker.rehearse", "--port", "0", "--rig", str(rig), "--speed", "1000"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        log = []
        for line in running.stderr:
            log.append(line)
            if "listening on " in line:
                break
        url = "http://127.0.0.1:" + log[-1].partition("127.0.0.1:")[2].partition(",")[0]
        (tmp_path / "start.log").write_text("".join(log))
        for place in (("--log", str(tmp_path / "start.log")), ("--url", url)):
            found = subprocess.run(
                [*stoker, "plan", "check", str(made.folder), *place, "--gpu", "h200", "--context", "2048",
                 "-o", "json"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert found.returncode in (0, 1), found.stderr
            assert str(planned["kv_cache_tokens"]) in found.stdout.replace(",", "")
        running.terminate()


def test_bad_words_are_one_line(tmp_path: Path) -> None:
    for words, told in (
        (["rehearse", "engine"], "say what is rehearsed"),
        (["rehearse", "engine", "--rig", "nothing.json"], "nothing.json"),
        (["rehearse", "engine", "x", "--gpu", "h200", "--names", "tgi"], "there are no names of 'tgi'"),
        (["rehearse", "engine", "--rig", "a.json", "--gpu", "h200"], "not both"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "stoker.cli.main", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, words
        assert told in done.stderr
