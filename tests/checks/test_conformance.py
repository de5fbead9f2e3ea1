"""Each fault of the scripted engine makes a row fail, and an engine without faults makes none."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.base.errors import Driver, Invalid
from stoker.checks.clients.base import Service
from stoker.checks.clients.known import CLIENTS, known
from stoker.checks.clients.turn import check
from stoker.checks.conformance import suite
from stoker.checks.conformance.events import stream_of
from stoker.checks.conformance.probe import Got, State, Talk

pytestmark = pytest.mark.e2e


class Engine:
    def __init__(self, folder: Path) -> None:
        self.script = folder / "script.json"
        (folder / "key").write_text("k")
        self.play()
        words = ["--port", "0", "--script", str(self.script), "--secret-file", str(folder / "key"), "--model", "fire"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stoker.rehearse", *words], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self.port = int(self.process.stderr.readline().split(",")[0].rpartition(":")[2])

    def play(self, **script: object) -> None:
        self.script.write_text(json.dumps(script))

    @property
    def talk(self) -> Talk:
        return Talk(url=f"http://127.0.0.1:{self.port}", key="k", model="fire", timeout=3)

    def failing(self, *dialects: str) -> set[str]:
        return {row.name for row in suite.run(self.talk, suite.chosen(dialects)) if row.fails}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    made = Engine(tmp_path_factory.mktemp("engine"))
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
def engine(started: Engine) -> Engine:
    started.play()
    return started


def test_an_engine_without_faults_passes_and_every_row_says_something(engine: Engine) -> None:
    rows = list(suite.run(engine.talk, suite.all_probes()))

    assert [row.name for row in rows if row.fails] == []
    assert sum(row.finding.state is State.PASS for row in rows) > 45
    assert all(row.finding.evidence for row in rows)
    assert len({row.name for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("script", "rows"),
    [
        ({"missing": ["done"]}, {"chat.stream", "messages.stream", "responses.stream"}),
        ({"missing": ["finish"]}, {"chat.stream", "messages.stream", "responses.whole"}),
        ({"missing": ["usage"]}, {"chat.usage-asked", "messages.whole", "responses.stream"}),
        ({"cut_after_tokens": 2}, {"chat.stream", "messages.stream", "responses.stream", "chat.whole"}),
        ({"cut_after_tokens": 2, "cut": "reset"}, {"chat.stream", "messages.stream", "responses.stream"}),
        ({"error_after_tokens": 2}, {"chat.stream", "messages.stream", "responses.stream", "chat.whole"}),
        ({"half_call": "finished"}, {"chat.tools", "messages.tools", "responses.tools"}),
        ({"tool_deltas": ["no_index"]}, {"chat.tools", "messages.tools"}),
        ({"tool_deltas": ["name_repeated"]}, {"chat.tools"}),
        ({"tool_deltas": ["finish_stop"]}, {"chat.tools", "messages.tools"}),
        ({"status": 503}, {"chat.whole", "messages.whole", "responses.whole", "messages.count-tokens"}),
        ({"overflow": "vllm"}, {"messages.replay-claude-code-2.1.332-1", "responses.replay-codex-0.171.0-1"}),
        ({"hang": True}, {"chat.whole"}),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_each_fault_is_found(engine: Engine, script: dict[str, object], rows: set[str]) -> None:
    engine.play(**script)
    if script.get("hang"):
        probe = next(p for p in suite.all_probes() if p.name == "chat.whole")
        assert "no answer in time" in probe.run(engine.talk).evidence
        return

    assert rows <= engine.failing()


def test_a_call_left_in_the_text_is_no_call(engine: Engine) -> None:
    engine.play(raw_tool_markup=True)
    rows = {row.name: row.finding for row in suite.run(engine.talk, suite.chosen(["chat"]))}

    assert rows["chat.tools"].state is State.SKIP
    service = Service(origin=engine.talk.url, key="k", model="fire")
    strict = {row.name: row for row in check(known("opencode"), service)}
    assert strict["chat.tools"].fails
    assert "toolParser" in strict["chat.tools"].finding.fix


@pytest.mark.parametrize("name", list(CLIENTS))
def test_every_client_can_be_checked(engine: Engine, name: str) -> None:
    service = Service(origin=engine.talk.url, key="k", model="fire", context_tokens=131_072, output_tokens=4096)

    rows = list(check(known(name), service))

    assert [row.name for row in rows if row.fails] == []
    assert any(".replay-" in row.name for row in rows)


def test_a_check_names_what_to_change(engine: Engine) -> None:
    service = Service(origin=engine.talk.url, key="k", model="fire", auxiliary="tiny", context_tokens=1000)
    rows = {row.name: row for row in check(known("claude-code"), service)}

    assert rows["auxiliary"].fails
    assert "aliases" in rows["auxiliary"].finding.fix
    assert rows["room"].fails
    assert "contextTokens" in rows["room"].finding.fix


def test_a_door_that_is_shut_or_absent_is_one_clear_error(engine: Engine) -> None:
    with pytest.raises(Driver, match="refuses the key"):
        suite.reach(Talk(url=engine.talk.url, key="wrong", model=""))
    with pytest.raises(Driver, match="refused"):
        suite.reach(Talk(url="http://127.0.0.1:1", key="", model=""))
    with pytest.raises(Invalid, match="did you mean 'chat'"):
        suite.chosen(["chatt"])
    assert suite.reach(Talk(url=engine.talk.url, key="k", model="")) == "fire"


def test_a_dialect_that_is_not_served_is_skipped_unless_it_was_asked_for() -> None:
    import http.server  # noqa: PLC0415 -- only here
    import threading  # noqa: PLC0415 -- only here

    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        talk = Talk(url=f"http://127.0.0.1:{server.server_port}", key="", model="m", timeout=5)
        probes = suite.chosen(["messages"])
        try:
            assert {row.finding.state for row in suite.run(talk, probes)} == {State.SKIP}
            assert {row.finding.state for row in suite.run(talk, probes, demanded=["messages"])} == {State.FAIL}
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"data: {}\n\ndata: [DONE]\n\n", ""),
        (b": comment\n\ndata: {}\r\n\r\n", ""),
        (b"data: {\n\n", "no JSON object"),
        (b"data: {}\n", "lacks its empty line"),
        (b"data: [DONE]\n\ndata: {}\n\n", "behind [DONE]"),
    ],
)
def test_a_stream_is_well_formed_or_it_is_told_why_not(body: bytes, problem: str) -> None:
    found = stream_of(Got(status=200, headers={"content-type": "text/event-stream"}, body=body)).problems

    assert problem in found[0] if problem else not found
