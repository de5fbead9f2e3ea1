"""The scripted engine as a process: the key, streams, every fault on the wire, a script that changes."""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.base.json import JsonObject
from stoker.decide.parsers import PROBES, Verdict, judge
from stoker.engines.registry import get

pytestmark = pytest.mark.e2e
KEY = "the-key"


class Rehearsal:
    """One process, and a client for it."""

    def __init__(self, folder: Path, *extra: str) -> None:
        self.script = folder / "script.json"
        self.script.write_text("{}")
        (folder / "key").write_text(KEY)
        argv = [sys.executable, "-m", "stoker.rehearse", "--port", "0", "--script", str(self.script)]
        argv += ["--secret-file", str(folder / "key"), "--model", "team/m", *extra]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        assert get("simulated").read_log([first]).ready
        self.port = int(first.split(",")[0].rpartition(":")[2])

    def play(self, **script: object) -> None:
        self.script.write_text(json.dumps(script))

    def call(self, path: str, body: object = None, *, key: str = KEY) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = None if body is None else json.dumps(body)
            connection.request("POST" if data else "GET", path, data, {"authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def chat(self, **more: object) -> tuple[int, bytes]:
        return self.call("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], **more})

    def metric(self, name: str) -> float:
        return get("simulated").metrics(self.call("/metrics")[1].decode())[name]


def verified(engine: Rehearsal) -> Verdict:
    """Ask the four template probes and judge the answers, as the controller does."""
    answers: dict[str, JsonObject] = {}
    for name, probe in PROBES.items():
        status, body = engine.chat(**probe)
        answers[name] = {"status": status, "body": json.loads(body)}
    return judge(answers, flags=get("simulated").parser_flags())


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Rehearsal]:
    made = Rehearsal(tmp_path, "--max-sequences", "1")
    yield made
    made.process.kill()
    made.process.wait()


def test_only_health_answers_without_the_key(engine: Rehearsal) -> None:
    assert engine.call("/health", key="")[0] == 200
    for path in ("/v1/models", "/metrics", "/v1/chat/completions", "/nowhere"):
        assert engine.call(path, key="wrong")[0] == 401
    assert b"team/m" in engine.call("/v1/models")[1]


def test_answers_count(engine: Rehearsal) -> None:
    assert engine.chat()[0] == 200
    assert engine.chat(stream=True)[1].endswith(b"data: [DONE]\n\n")
    assert engine.call("/v1/embeddings", {"input": "a"})[0] == 200
    assert engine.call("/v1/completions", {"prompt": "a"})[0] == 200
    assert engine.call("/v1/chat/completions", [])[0] == 400
    assert engine.metric("generation_tokens_total") == 33
    assert set(get("simulated").expected_metrics()) <= set(
        get("simulated").metrics(engine.call("/metrics")[1].decode())
    )


def test_a_changed_script_holds_at_once_and_a_wrong_one_is_passed_over(engine: Rehearsal) -> None:
    engine.play(status=503, retry_after_seconds=3)
    assert engine.chat()[0] == 503
    engine.script.write_text("{")
    assert engine.chat()[0] == 503
    engine.play(model="another")
    assert b"another" in engine.chat()[1]


def test_a_new_script_counts_its_requests_anew(engine: Rehearsal) -> None:
    for _ in range(2):
        engine.play(status=503, times=1)
        assert [engine.chat()[0] for _ in range(3)] == [503, 200, 200]
        engine.play()
        assert engine.chat()[0] == 200


def test_every_request_is_written_down_but_its_key(tmp_path: Path) -> None:
    made = Rehearsal(tmp_path, "--record", str(tmp_path / "seen.jsonl"))
    made.chat(stream=True)
    made.call("/v1/messages", {"messages": []}, key=KEY)
    made.process.kill()
    made.process.wait()
    lines = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]

    assert [line["path"] for line in lines] == ["/v1/chat/completions", "/v1/messages"]
    assert lines[0]["body"]["stream"] is True
    assert KEY not in (tmp_path / "seen.jsonl").read_text()


def test_a_clean_cut_looks_whole_to_http(engine: Rehearsal) -> None:
    engine.play(cut_after_tokens=2)
    status, body = engine.chat(stream=True)

    assert status == 200
    assert b"[DONE]" not in body
    assert b'finish_reason":"' not in body


def test_a_reset_is_one(engine: Rehearsal) -> None:
    engine.play(cut_after_tokens=2, cut="reset")

    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        engine.chat(stream=True)


def test_an_answer_that_is_not_streamed_can_be_cut_too(engine: Rehearsal) -> None:
    engine.play(cut_after_tokens=2)

    with pytest.raises(http.client.IncompleteRead):
        engine.chat()


def test_a_hanging_engine_is_healthy_and_a_client_that_goes_frees_its_slot(engine: Rehearsal) -> None:
    engine.play(hang=True)
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        body = b'{"messages":[]}'
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer %s\r\ncontent-length: %d\r\n\r\n%s"
            % (KEY.encode(), len(body), body)
        )
        while engine.metric("requests_running") != 1:
            pass
        assert engine.call("/health")[0] == 200
    while engine.metric("requests_running") != 0:
        pass
    engine.play()
    assert engine.chat()[0] == 200


def test_a_crash_ends_the_process(engine: Rehearsal) -> None:
    engine.play(crash_after_tokens=1)

    with pytest.raises((ConnectionError, http.client.HTTPException)):
        engine.chat(stream=True)
    assert engine.process.wait(20) == 1


def test_sigterm_ends_it(engine: Rehearsal) -> None:
    engine.process.terminate()

    assert engine.process.wait(20) == 0


def test_requests_may_share_a_connection_and_come_in_chunks(engine: Rehearsal) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
    for _ in range(2):
        connection.request(
            "POST",
            "/v1/chat/completions",
            iter([b'{"messages"', b":[]}"]),
            {"authorization": f"Bearer {KEY}"},
            encode_chunked=True,
        )
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
    connection.close()


def test_an_engine_that_answers_200_to_everything_with_the_wrong_parser_is_found_out(engine: Rehearsal) -> None:
    assert verified(engine).status == "True"

    engine.play(raw_tool_markup=True)
    found = verified(engine)
    assert (found.status, found.reason, found.action) == ("False", "ToolMarkupInText", "set spec.engine.toolParser")

    engine.play(reasoning="first this, then that", raw_reasoning_markup=True)
    assert verified(engine).action == "set spec.engine.reasoningParser"

    engine.play(calls=0)
    assert verified(engine).reason == "NoCallMade"


def test_setting_the_named_flag_mends_it(tmp_path: Path) -> None:
    made = Rehearsal(tmp_path, "--tool-parser", "any", "--reasoning-parser", "any")
    made.play(raw_tool_markup=True, reasoning="so", raw_reasoning_markup=True)

    assert verified(made).status == "True"
    made.process.kill()
    made.process.wait()
