"""The worker as a process: never open without a key, nothing lost when killed, and a real SDK on a real engine."""

import contextlib
import hashlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import openai
import pytest
from tests.models import tiny

from stoker.drivers import live
from stoker.drivers.spool import HEADER, SUFFIX
from stoker.facts.ending import Outcome
from stoker.facts.record import Record
from stoker.facts.routes import Caller, Callers, Endpoint, Key, Routes, Service, State, Target, seal

pytestmark = pytest.mark.e2e
KEY = "sk-process"


def bound() -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(512)
    return listener


def policy(folder: Path, origin: str, **fields: object) -> None:
    spec = msgspec.convert(
        {"name": "e1", "incarnation": "e1-1", "state": State.SERVE, "origin": origin, **fields}, Endpoint
    )
    service = Service(
        name="default/tiny", models=("tiny",), targets=(Target(endpoints=("e1",)),), max_output_tokens=200
    )
    key = Key(id="k", sha256=hashlib.sha256(KEY.encode()).hexdigest())
    (folder / "keys").mkdir(parents=True, exist_ok=True)
    (folder / "routes.json").write_bytes(seal(Routes(generation=1, services=(service,), endpoints=(spec,))))
    (folder / "callers.json").write_bytes(seal(Callers(generation=1, callers=(Caller(name="a", keys=(key,)),))))


def launch(folder: Path, listener: socket.socket, *more: str) -> "subprocess.Popen[bytes]":
    fd = listener.fileno()
    argv = [sys.executable, "-m", "stoker.gateway", "--state-dir", str(folder), "--listen-fd", str(fd), *more]
    return subprocess.Popen(argv, pass_fds=(fd,), stderr=subprocess.DEVNULL)


def ask(port: int, path: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    try:
        connection.request("POST" if body is not None else "GET", path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def records(folder: Path) -> list[Record]:
    found = []
    for segment in sorted((folder / "spool").glob(f"*{SUFFIX}")):
        data, at = segment.read_bytes(), 0
        while at + HEADER.size <= len(data) and (length := HEADER.unpack_from(data, at)[0]):
            at += HEADER.size
            found.append(msgspec.msgpack.decode(data[at : at + length], type=Record))
            at += length
    return found


@pytest.mark.timeout(170)
def test_prober_never_gets_an_answer_without_a_key(tmp_path: Path) -> None:
    """The supervisor's socket stays open over starts and stops; whoever knocks waits for a worker with its policy."""
    policy(tmp_path, "http://127.0.0.1:9", slots=1)
    listener = bound()
    port = listener.getsockname()[1]
    seen: list[int] = []
    over = threading.Event()

    def probe() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                seen.append(ask(port, "/v1/models")[0])

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        for turn in range(100):
            worker = launch(tmp_path, listener)
            assert ask(port, "/v1/models", {"x-api-key": KEY})[0] == 200
            worker.send_signal(signal.SIGTERM if turn % 2 else signal.SIGKILL)
            worker.wait(20)
            assert worker.returncode == (0 if turn % 2 else -signal.SIGKILL)
    finally:
        over.set()
        worker = launch(tmp_path, listener)
        prober.join(20)
        worker.terminate()
        worker.wait(20)
        listener.close()

    assert len(seen) > 100
    assert set(seen) == {401}


def engine_that_streams(listener: socket.socket, over: threading.Event) -> None:
    """One event each 20 ms, 25 of them, for every connection."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
    last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for _ in range(25):
                connection.sendall(event)
                time.sleep(0.02)
            connection.sendall(last)

    listener.settimeout(0.2)
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


@pytest.mark.timeout(120)
def test_killed_worker_loses_no_record_and_names_what_it_lost(tmp_path: Path) -> None:
    upstream, listener, over = bound(), bound(), threading.Event()
    threading.Thread(target=engine_that_streams, args=(upstream, over), daemon=True).start()
    policy(tmp_path, f"http://127.0.0.1:{upstream.getsockname()[1]}")
    port = listener.getsockname()[1]
    worker = launch(tmp_path, listener)
    answered: list[str] = []
    broken: list[str] = []

    def client(name: str) -> None:
        body = msgspec.json.encode({"model": "tiny", "stream": True, "messages": []})
        for turn in range(6):
            request_id = f"{name}-{turn}"
            try:
                _, got = ask(port, "/v1/chat/completions", {"x-api-key": KEY, "x-request-id": request_id}, body)
            except (OSError, http.client.HTTPException):
                broken.append(request_id)
            else:
                (answered if got.endswith(b"data: [DONE]\n\n") else broken).append(request_id)

    threads = [threading.Thread(target=client, args=(f"c{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    while not answered:  # however long the start takes: then the second round is on its way
        time.sleep(0.02)
    time.sleep(0.2)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
    dead = live.read(tmp_path / "run" / "gateway-0.live")
    began = time.monotonic()  # noqa: TID251 -- how long the gap was is what is shown
    worker = launch(tmp_path, listener)
    assert ask(port, "/v1/models", {"x-api-key": KEY})[0] == 200
    gap = time.monotonic() - began  # noqa: TID251
    for thread in threads:
        thread.join(60)
    worker.terminate()
    assert worker.wait(20) == 0
    over.set()

    counted = [record.request_id for record in records(tmp_path) if record.outcome is Outcome.COMPLETE and record.model]
    assert len(counted) == len(set(counted))
    assert set(answered) <= set(counted)
    assert dead is not None
    lost = {request.request_id for request in dead.in_flight}
    assert lost
    assert set(broken) <= lost | set(counted)
    print(f"back after {gap:.2f} s; {len(answered)} answered, {len(lost)} lost")


@contextmanager
def llama(folder: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model = tiny.make(folder)
    (folder / "engine.key").write_text(secrets.token_hex(8))
    flags = [
        "-c",
        "2048",
        "-np",
        "2",
        "-t",
        "1",
        "--jinja",
        "--alias",
        "tiny",
        "--api-key-file",
        str(folder / "engine.key"),
    ]
    argv = [sys.executable, "-m", "stoker.drivers.llama_server", "-m", str(model.gguf), "--port", str(port), *flags]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                if ask(port, "/health")[0] == 200:
                    break
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(120)
def test_openai_sdk_on_a_real_engine(tmp_path: Path) -> None:
    with llama(tmp_path) as engine:
        policy(tmp_path, f"http://127.0.0.1:{engine}", credential_file="engine.key", slots=2, queue=10)
        listener = bound()
        worker = launch(tmp_path, listener)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            sdk = openai.OpenAI(base_url=base, api_key=KEY, max_retries=0)
            assert [model.id for model in sdk.models.list()] == ["tiny"]
            words = [{"role": "user", "content": "hello"}]
            whole = sdk.chat.completions.create(model="tiny", messages=words, temperature=0)  # type: ignore[arg-type]
            pieces = list(sdk.chat.completions.create(model="tiny", messages=words, temperature=0, stream=True))  # type: ignore[call-overload]
            text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
            assert whole.choices[0].message.content == text
            assert text.endswith(".")
            assert whole.choices[0].finish_reason == "stop"
            assert whole.usage is not None
            assert whole.usage.completion_tokens > 3
            assert all(piece.usage is None for piece in pieces)
            short = sdk.completions.create(model="tiny", prompt="A stoker", max_tokens=3, temperature=0)
            assert short.choices[0].finish_reason == "length"
            with pytest.raises(openai.AuthenticationError):
                openai.OpenAI(base_url=base, api_key="sk-wrong", max_retries=0).models.list()
            with pytest.raises(openai.NotFoundError, match="Did you mean 'tiny'"):
                sdk.chat.completions.create(model="tinny", messages=words)  # type: ignore[arg-type]
            long = sdk.chat.completions.create(model="tiny", messages=words, stream=True)  # type: ignore[arg-type]
            next(iter(long))
            long.close()
        finally:
            worker.terminate()
            assert worker.wait(20) == 0
            listener.close()
    kept = [record for record in records(tmp_path) if record.endpoint]
    assert [record.outcome for record in kept[:3]] == [Outcome.COMPLETE, Outcome.COMPLETE, Outcome.LENGTH]
    assert kept[0].tokens.output == kept[1].tokens.output > 3
    assert kept[0].times.first_token > 0
