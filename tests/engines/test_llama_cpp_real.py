"""The adapter against the real llama.cpp: its own command line, its own answers, its own log."""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.tiny import make

from stoker.base.json import Json, JsonObject
from stoker.decide.parsers import PROBES, judge
from stoker.engines.base import Ask, Model
from stoker.engines.differences import compare
from stoker.engines.registry import get, python_module
from stoker.spec.deployment import EngineBlock

pytestmark = pytest.mark.e2e
ENGINE = get("llama.cpp")
BLOCK = EngineBlock(name="llama.cpp", context_tokens=512, max_sequences=2)
KEY = "a-key-of-this-start"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """One start of the real server by the adapter's command line."""

    def __init__(self, folder: Path, model: Path, block: EngineBlock, *, key: str = KEY) -> None:
        self.port, self.log = free_port(), folder / "engine.log"
        (folder / "secret").write_text(key)
        ask = Ask(
            block=block,
            model=Model(path=str(model), format="gguf", context_tokens=4096),
            served_name="team/tiny",
            port=self.port,
            secret=key,
            secret_file=str(folder / "secret"),
            executable=(sys.executable, *python_module("llama.cpp")),
            cores=2,
        )
        launch = ENGINE.launch(ask)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(launch.argv, env=launch.env, stdout=log, stderr=log)

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def get(self, path: str, *, key: str = KEY, body: Json = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        try:
            data = None if body is None else json.dumps(body)
            connection.request("GET" if data is None else "POST", path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def wait(self) -> None:
        while self.process.poll() is None:
            try:
                if self.get(ENGINE.probes.health)[0] == 200:
                    return
            except ConnectionError:
                pass
            time.sleep(0.05)
        pytest.fail("\n".join(self.lines()[-5:]))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("llama")
    made = Served(folder, make(folder).gguf, BLOCK)
    made.wait()
    yield made
    made.process.kill()
    made.process.wait()


def test_what_is_in_force_is_what_was_asked(served: Served) -> None:
    answers: dict[str, Json] = {path: json.loads(served.get(path)[1]) for path in ENGINE.probes.in_force}
    found = ENGINE.in_force(answers)

    assert (found.context_tokens, found.max_sequences) == (512, 2)
    assert found.model_names == ("team/tiny",)
    assert compare(BLOCK, found) == ()
    assert compare(BLOCK.model_copy(update={"context_tokens": 1024}), found)[0].field == "spec.engine.contextTokens"


def test_its_metrics_move_and_none_is_missing(served: Served) -> None:
    before = ENGINE.metrics(served.get(ENGINE.probes.metrics)[1].decode())
    asked: Json = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "temperature": 0}
    status, body = served.get("/v1/chat/completions", body=asked)
    after = ENGINE.metrics(served.get(ENGINE.probes.metrics)[1].decode())

    assert status == 200
    usage = json.loads(body)["usage"]
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == usage["completion_tokens"]
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == usage["prompt_tokens"]
    assert set(ENGINE.expected_metrics()) <= set(after)


def test_its_log_tells_that_it_is_ready_and_how_much_it_holds(served: Served) -> None:
    facts = ENGINE.read_log(served.lines())

    assert facts.ready
    assert facts.kv_cache_tokens == 1024
    assert facts.trouble is None


def test_without_the_key_only_health_answers(served: Served) -> None:
    assert served.get("/health", key="")[0] == 200
    for path in ("/v1/models", "/props", "/slots", "/metrics"):
        assert served.get(path, key="wrong")[0] == 401
    assert served.get("/v1/chat/completions", key="", body={"messages": []})[0] == 401
    command = Path(f"/proc/{served.process.pid}/cmdline").read_bytes()
    assert KEY.encode() not in command


def test_a_model_whose_template_has_no_tools_proves_nothing(served: Served) -> None:
    answers: dict[str, JsonObject] = {}
    for name, probe in PROBES.items():
        status, body = served.get("/v1/chat/completions", body={**probe, "max_tokens": 16})
        answers[name] = {"status": status, "body": json.loads(body)}
    template = str(json.loads(served.get("/props")[1])["chat_template"])

    assert judge(answers, flags=ENGINE.parser_flags()).status == "Unknown"
    assert not judge(answers, flags=ENGINE.parser_flags(), template=template).applicable


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("cut", "ModelFilesNotFound"), ("architecture", "UnsupportedArchitecture"), ("flag", "BadFlag")],
)
def test_a_start_that_fails_is_explained(tmp_path: Path, broken: str, reason: str) -> None:
    model = make(tmp_path).gguf
    data = model.read_bytes()
    extra = ("--no-such-flag",) if broken == "flag" else ()
    if broken == "cut":
        model.write_bytes(data[:5000])
    if broken == "architecture":
        place = data.index(b"llama", data.index(b"general.architecture"))
        model.write_bytes(data[:place] + b"lxama" + data[place + 5 :])
    made = Served(tmp_path, model, BLOCK.model_copy(update={"extra_args": extra}))
    code = made.process.wait(40)

    told = ENGINE.explain(code=code, signal=None, log_tail=made.lines())
    assert code != 0
    assert told.reason == reason
