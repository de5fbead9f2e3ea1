"""What the newcomer does in her first minutes, with the real openai client and a real llama.cpp."""

import json
import re
import signal
import subprocess
import sys

import openai
import pytest
from tests.e2e.machine import ATTENTIVE, STOKER, Machine


def client(machine: Machine) -> openai.OpenAI:
    return openai.OpenAI(base_url=machine.url, api_key=machine.key, max_retries=0)


def test_openai_streams_and_answers_whole(shared: Machine) -> None:
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Tell."}], "max_tokens": 40, "temperature": 0}
    whole = client(shared).chat.completions.create(**ask)
    pieces = list(client(shared).chat.completions.create(**ask, stream=True))

    assert whole.choices[0].finish_reason == "stop"
    assert whole.choices[0].message.content
    assert "".join(c.choices[0].delta.content or "" for c in pieces if c.choices) == whole.choices[0].message.content
    assert pieces[-1].choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert whole.usage.completion_tokens > 0


def test_completions_and_models(shared: Machine) -> None:
    said = client(shared).completions.create(model="tiny", prompt="The engine", max_tokens=8, temperature=0)

    assert said.choices[0].text
    assert [m.id for m in client(shared).models.list().data] == ["default/tiny", "tiny"]


def test_without_a_key_nothing_is_answered(shared: Machine) -> None:
    stranger = openai.OpenAI(base_url=shared.url, api_key="sk-nobody", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_an_unknown_model_names_the_nearest(shared: Machine) -> None:
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client(shared).chat.completions.create(model="tinyy", messages=[{"role": "user", "content": "x"}])


def test_usage_counts_what_the_engine_counted(shared: Machine) -> None:
    key = shared.ok("key", "create", "counter").strip()
    own = openai.OpenAI(base_url=shared.url, api_key=key, max_retries=0)
    ask = {"model": "tiny", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 12}
    answers = [own.chat.completions.create(**ask) for _ in range(3)]
    with pytest.raises(openai.NotFoundError):
        own.chat.completions.create(model="nothing", messages=[{"role": "user", "content": "x"}])
    rows = [r for r in shared.data("usage", "--by", "caller,outcome")["items"] if r["caller"] == "counter"]
    by_outcome = {r["outcome"]: r for r in rows}

    answered = [r for name, r in by_outcome.items() if name in ("complete", "length")]
    assert sum(r["requests"] for r in answered) == 3
    assert sum(r["output_tokens"] for r in answered) == sum(a.usage.completion_tokens for a in answers if a.usage)
    assert sum(r["prompt_tokens"] for r in answered) == sum(a.usage.prompt_tokens for a in answers if a.usage)
    assert by_outcome["rejected"]["requests"] == 1


def test_the_printed_lines_work_as_printed(fresh: Machine, tiny_gguf: object) -> None:
    said = fresh.up("--model", str(tiny_gguf))
    curl = next(line for line in said.splitlines() if line.startswith("curl "))
    at = said.splitlines().index("from openai import OpenAI")
    python, lines = said.splitlines()[at - 1], said.splitlines()[at : at + 3]

    answered = subprocess.run(curl, shell=True, capture_output=True, text=True, timeout=60, check=True)  # noqa: S602
    assert '"finish_reason":"' in answered.stdout
    pasted = subprocess.run([python], input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True)
    assert pasted.stdout.strip()


def test_ctrl_c_stops_everything_and_a_second_up_comes_back(fresh: Machine, tiny_gguf: object) -> None:
    words = [
        "up",
        "--model",
        str(tiny_gguf),
        "--listen",
        f"127.0.0.1:{fresh.port}",
        "--admin",
        f"127.0.0.1:{fresh.admin}",
    ]
    with subprocess.Popen(
        [*ATTENTIVE, "-u", "PYTHONUNBUFFERED", *STOKER, "--state-dir", str(fresh.root), *words],  # a pipe is buffered
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        key = ""
        for line in process.stdout:
            found = re.search(r"key +(sk-\S+)", line)
            key = found.group(1) if found else key
            if line.startswith("print("):
                break
        engines = fresh.pids("llama_server")
        assert engines
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert fresh.pids("llama_server") == []
    assert fresh.pids("stoker.gateway") == []
    assert fresh.pids("stoker.control") == []

    fresh.key = key
    said = fresh.up()
    assert "sk-" not in said  # shown once
    answer = client(fresh).chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], max_tokens=4
    )
    assert answer.choices[0].finish_reason


def test_a_stream_in_flight_finishes_before_down_ends(running: Machine) -> None:
    ask = {"model": "tiny", "prompt": "The engine", "max_tokens": 400, "extra_body": {"ignore_eos": True}}
    stream = client(running).completions.create(**ask, stream=True)
    first = next(iter(stream))
    with subprocess.Popen([*STOKER, "--state-dir", str(running.root), "down"], stdout=subprocess.DEVNULL) as going:
        rest = list(stream)
        going.wait(timeout=120)

    assert first.choices
    assert rest[-1].choices[0].finish_reason == "length"


def test_upgrade_in_place_adopts_the_engines(running: Machine) -> None:
    before = running.pids("llama_server")
    running.ok("down", "--keep-engines")
    assert running.pids("llama_server") == before
    assert running.pids("stoker.control") == []
    running.up()

    assert running.pids("llama_server") == before
    assert client(running).models.list().data


def test_a_second_supervisor_is_refused(running: Machine) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "stoker.control.supervisor",
            "--state-dir",
            str(running.root),
            "--listen",
            "127.0.0.1:1",
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode != 0
    assert "runs already" in done.stderr + done.stdout


def test_a_busy_port_is_a_clear_error(running: Machine, tmp_path: object) -> None:
    other = Machine(root=running.root.parent / "other", port=running.port)
    done = other.run("up", "-d", "--listen", f"127.0.0.1:{running.port}", "--admin", f"127.0.0.1:{other.admin}")

    assert done.returncode == 1
    assert str(running.port) in done.stderr
    assert other.pids("stoker.control") == []


def test_up_with_another_model_keeps_what_its_owner_changed_and_a_lost_gateway_comes_back(
    running: Machine, tiny_gguf: object
) -> None:
    gateway = {**running.data("get", "ig", "default"), "status": None}
    gateway["spec"]["limits"] = {"maxOutputTokens": 7}
    running.ok(
        "apply", "-f", "-", stdin=json.dumps({k: gateway[k] for k in ("apiVersion", "kind", "metadata", "spec")})
    )
    running.up("--model", str(tiny_gguf))

    assert running.data("get", "ig", "default")["spec"]["limits"] == {"maxOutputTokens": 7}
    running.ok("delete", "ig", "default")
    running.wait(
        "the service tells why", lambda: running.condition("ms", "tiny", "RoutingReady")["reason"] == "NoGateway"
    )
    running.up()
    assert running.data("get", "ig", "default")["spec"]["serviceSelector"]
    running.wait("it serves again", lambda: client(running).models.list().data)
