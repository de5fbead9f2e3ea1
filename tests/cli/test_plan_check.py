"""`stoker plan check`: logs, live engines, and a real llama.cpp on this machine."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.models import hollow, tiny
from typer.testing import CliRunner, Result

from stoker.base.errors import Driver, Invalid, NotFound
from stoker.cli.main import build
from stoker.engines.parts import asked

app = build()

SAMPLES = Path(__file__).parents[1] / "data/engine-samples"
VLLM = """INFO non-default args: {'model': 'm', 'max_model_len': 8192, 'gpu_memory_utilization': 0.92}
INFO Initializing a V1 LLM engine (v0.19.0) with config: model='m', max_seq_len=8192, kv_cache_dtype=auto
INFO Model loading took 14.99 GiB memory and 3.2 seconds
INFO Available KV cache memory: 52.50 GiB
INFO GPU KV cache size: 430,080 tokens
INFO Application startup complete."""
SGLANG = """server_args=ServerArgs(model_path='m', tp_size=1, mem_fraction_static=0.85, context_length=8192)
Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, mem usage=15.05 GB.
KV Cache is allocated. #tokens: 427000, K size: 26.06 GB, V size: 26.06 GB
max_total_num_tokens=427000, chunked_prefill_size=8192, max_running_requests=2048, context_len=8192
The server is fired up and ready to roll!"""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(hollow.llama_8b(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tiny.Tiny:
    return tiny.make(tmp_path_factory.mktemp("tiny"))


def stoker(state: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--state-dir", str(state), "plan", *words])


def sides(result: Result) -> dict[str, dict]:
    assert result.exit_code == 0, (result.output, result.exception)
    return {side["what"]: side for side in json.loads(result.stdout)["sides"]}


def written(folder: Path, text: str) -> str:
    (folder / "start.log").write_text(text)
    return str(folder / "start.log")


def test_a_vllm_log_is_compared_and_moves_the_next_plan(llama: str, tmp_path: Path) -> None:
    log, words = written(tmp_path, VLLM), (llama, "--gpu", "h100-sxm")
    found = sides(stoker(tmp_path, "check", *words, "--log", log, "-o", "json"))

    assert abs(found["weights"]["error"]) < 0.01
    assert found["KV cache"]["error"] > 0.02
    assert "another process" in found["KV cache"]["likely_cause"]
    load = ("--engine", "vllm@0.19.0", "--context", "8192", "--utilization", "0.92", "-o", "json")
    budget = json.loads(stoker(tmp_path, *words, *load).stdout)["plans"][0]["budget"]
    assert {t["name"]: t["bytes"] for t in budget}["KV cache"] / 2**30 == pytest.approx(52.5, abs=0.05)
    assert (
        "1 start: the next plan" in stoker(tmp_path, "check", *words, "--log", log).stdout
    )  # told twice, counted once


def test_an_sglang_log_is_compared(llama: str, tmp_path: Path) -> None:
    found = sides(
        stoker(tmp_path, "check", llama, "--gpu", "h100-sxm", "--log", written(tmp_path, SGLANG), "-o", "json")
    )

    assert abs(found["KV tokens"]["error"]) < 0.03
    assert not (tmp_path / "starts.jsonl").exists()  # tokens alone teach nothing about bytes


def test_a_real_start_of_vllm_on_a_processor(made: tiny.Tiny, tmp_path: Path) -> None:
    log = SAMPLES / "vllm-0.32.0-cpu-start.log"
    found = sides(stoker(tmp_path, "check", str(made.folder), "--gpu", "cpu", "--log", str(log), "-o", "json"))

    assert found["KV tokens"]["predicted"] == found["KV tokens"]["observed"] == 131_072


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(VLLM, {"utilization": 0.92, "context": 8192}, id="vllm"),
        pytest.param(SGLANG, {"utilization": 0.85, "context": 8192, "tensor": 1, "sequences": 2048}, id="sglang"),
        pytest.param("n_slots = 2, n_ctx_slot = 512", {"sequences": 2, "context": 512}, id="llama.cpp"),
        pytest.param("'quantization': None, 'kv_cache_dtype': 'fp8'", {"kv_dtype": "fp8"}, id="none"),
        pytest.param("kv_cache_memory_bytes=4096", {"cache_bytes": 4096.0}, id="a given cache"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_the_settings_of_a_start(text: str, want: dict[str, object]) -> None:
    found = asked.read(text)

    assert {name: getattr(found, name) for name in want} == want


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        pytest.param((), Invalid, "--log FILE, or --url", id="nothing to look at"),
        pytest.param(("--log", "/nonexistent"), Invalid, "/nonexistent", id="no file"),
        pytest.param(("--log", "{cut}", "--engine", "ollama"), Invalid, "cannot be checked", id="engine"),
        pytest.param(("--log", "{other}"), Invalid, "no engine is known", id="another file"),
        pytest.param(("--log", "{cut}"), NotFound, "tells nothing", id="a log that was cut"),
        pytest.param(("--url", "http://127.0.0.1:9", "--engine", "vllm"), Driver, "127.0.0.1:9", id="nobody there"),
        pytest.param(("--log", "{cut}", "--pid", "999999999"), Invalid, "no process", id="no process"),
    ],
)
def test_bad_input(llama: str, tmp_path: Path, words: tuple[str, ...], kind: type[Exception], message: str) -> None:
    (tmp_path / "cut").write_text("INFO vLLM API server\n")
    (tmp_path / "other").write_text("hello\n")
    told = [word.format(cut=tmp_path / "cut", other=tmp_path / "other") for word in words]
    error = stoker(tmp_path, "check", llama, "--gpu", "h100-sxm", *told).exception

    assert isinstance(error, kind)
    assert message in str(error)


def test_a_damaged_line_of_the_store_is_named(llama: str, tmp_path: Path) -> None:
    (tmp_path / "starts.jsonl").write_text("{}\n")
    error = stoker(tmp_path, llama, "--gpu", "h100-sxm").exception

    assert isinstance(error, Driver)
    assert "starts.jsonl:1" in str(error)


class _Sglang(BaseHTTPRequestHandler):
    """A server that tells what SGLang tells."""

    def do_GET(self) -> None:
        pages = {"/server_info": {"max_total_num_tokens": 420_000, "context_length": 8192, "version": "0.5.9"},
                 "/v1/models": {"data": [{"id": "m"}]}}  # fmt: skip
        body = json.dumps(pages.get(self.path, {})).encode()
        self.send_response(200 if self.path in pages else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 -- the base class's name


@pytest.fixture
def sglang() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Sglang)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_live_engine_is_asked(llama: str, sglang: str, tmp_path: Path) -> None:
    result = stoker(tmp_path, "check", llama, "--gpu", "h100-sxm", "--url", sglang, "-o", "json")

    assert json.loads(result.stdout)["engine"] == "sglang"
    assert sides(result)["KV tokens"]["observed"] == 420_000


@pytest.fixture(scope="module")
def engine(made: tiny.Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A real llama.cpp with two slots."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "key").write_text("a-key")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    argv = [sys.executable, "-m", "stoker.drivers.llama_server", "-m", str(made.gguf), "--alias", "m"]
    argv += ["--host", "127.0.0.1", "--port", port, "--api-key-file", str(folder / "key"), "-np", "2", "-c", "1024"]
    with (folder / "log").open("wb") as log:
        argv += ["-t", "1", "-ngl", "0", "--metrics", "--slots"]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        while "model loaded" not in (folder / "log").read_text():
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield {"url": f"http://127.0.0.1:{port}", "key": str(folder / "key"), "log": str(folder / "log"),
               "pid": str(process.pid)}  # fmt: skip
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.e2e
def test_a_real_start_of_llama_cpp_becomes_a_case(made: tiny.Tiny, engine: dict[str, str], tmp_path: Path) -> None:
    words = (str(made.gguf), "--gpu", "cpu", "-o", "json")
    live = ("--url", engine["url"], "--key-file", engine["key"], "--pid", engine["pid"])
    told = sides(stoker(tmp_path, "check", *words, *live))
    read = sides(stoker(tmp_path, "check", *words, "--log", engine["log"], "--no-keep"))

    assert told["KV tokens"]["predicted"] == told["KV tokens"]["observed"] == 1024
    assert read["context"]["predicted"] == read["context"]["observed"] == 512
    seen = told["whole process"]["observed"]
    shape = ("--engine", "llama.cpp", "--context", "512", "--sessions", "2")
    budget = json.loads(stoker(tmp_path, *words, *shape).stdout)["plans"][0]["budget"]
    used = sum(term["bytes"] for term in budget if term["name"] != "left free") / 2**30
    assert used == pytest.approx(seen, rel=0.01)  # what was learned is in the next plan


@pytest.mark.e2e
def test_a_live_engine_with_a_key_asks_for_it(made: tiny.Tiny, engine: dict[str, str], tmp_path: Path) -> None:
    error = stoker(tmp_path, "check", str(made.gguf), "--gpu", "cpu", "--url", engine["url"]).exception

    assert isinstance(error, Driver)
    assert "--key-file" in str(error)
