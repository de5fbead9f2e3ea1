"""What a person who mistypes, hurries or closes the terminal is told, and what stays behind: nothing."""

import os
import pty
import signal
import subprocess

import pytest
from tests.e2e.machine import STOKER, Machine


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["logs", "tinny"], "there is no replica or deployment 'tinny' in namespace default"),
        (["logs", "tiny", "--previous"], "is at its first attempt"),
        (["logs", "tiny", "--tail", "-1"], "greater than or equal to 0"),
        (["events", "--limit", "0"], "greater than or equal to 1"),
        (["key", "create", "Ann Smith"], "'Ann Smith' is no valid name"),
        (["key", "create", "tests", "--service", "tiny"], "Caller/tests is there already"),
        (["chat", "hello", "--model", "tinny"], "--model: no ready model is called 'tinny' (tiny)"),
        (["get", "modeldeploymnt"], "did you mean 'modeldeployments'"),
        (["describe", "md", "tinny"], "did you mean 'tiny'"),
    ],
)
def test_a_mistake_is_named_and_exits_with_2(shared: Machine, words: list[str], told: str) -> None:
    done = shared.run(*words)

    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_what_counts_only_at_a_start_is_not_ignored_silently(shared: Machine) -> None:
    done = shared.run("up", "-d", "--workers", "2")

    assert done.returncode == 0
    assert "--workers: counts only at a start" in " ".join(done.stderr.split())


def test_up_right_after_down_waits_for_its_end_and_starts_anew(running: Machine) -> None:
    before = running.supervisor()
    with subprocess.Popen([*STOKER, "--state-dir", str(running.root), "down"], stdout=subprocess.PIPE) as down:
        running.wait("it stops", lambda: b'"stopping":true' in (running.root / "run/supervisor.json").read_bytes())
        running.up()
        down.communicate(timeout=60)

    assert down.returncode == 0
    assert running.supervisor() != before


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_terminal_that_closes_while_it_starts_leaves_nothing_running(
    fresh: Machine, tiny_gguf: object, number: signal.Signals
) -> None:
    words = ["up", "--model", str(tiny_gguf), "--listen", f"127.0.0.1:{fresh.port}"]
    command = [*STOKER, "--state-dir", str(fresh.root), *words, "--admin", f"127.0.0.1:{fresh.admin}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        fresh.wait("the controller starts", lambda: fresh.pids("stoker.control"))
        process.send_signal(number)
        process.communicate(timeout=60)

    assert process.returncode != 0
    for module in ("stoker.control.supervisor", "stoker.control", "stoker.gateway", "llama_server"):
        assert fresh.pids(module) == []


def test_two_people_who_start_at_once_get_one_stoker(fresh: Machine, tiny_gguf: object) -> None:
    words = ["up", "-d", "--model", str(tiny_gguf), "--listen", f"127.0.0.1:{fresh.port}"]
    command = [*STOKER, "--state-dir", str(fresh.root), *words, "--admin", f"127.0.0.1:{fresh.admin}"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]

    assert [process.returncode for process in both] == [0, 0], said
    assert len(fresh.pids("stoker.control.supervisor")) == 1
    assert len(fresh.pids("llama_server")) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--state-dir", "/tmp/" + "long" * 30, "up"], "too long for a Unix socket"),
        (["up", "--listen", "1.2.3"], "--listen: '1.2.3' is no address (HOST:PORT"),
        (["up", "--listen", "0.0.0.0:1"], "put TLS in front and say --insecure"),
        (["up", "--admin", "0.0.0.0:1", "--insecure"], "--admin: metrics have no key"),
        (["up", "--model", "nothing"], "is no file, no folder, no hub repository and no known name"),
    ],
)
def test_a_start_that_cannot_be_is_refused_before_anything_is_made(fresh: Machine, words: list[str], told: str) -> None:
    done = fresh.run(*words)

    assert done.returncode == 2
    assert told in " ".join(done.stderr.split())
    assert not fresh.root.exists()


def test_a_terminal_that_is_gone_ends_it_even_when_the_signal_stays_with_make(
    fresh: Machine, tiny_gguf: object
) -> None:
    words = ["up", "--model", str(tiny_gguf), "--listen", f"127.0.0.1:{fresh.port}"]
    command = [*STOKER, "--state-dir", str(fresh.root), *words, "--admin", f"127.0.0.1:{fresh.admin}"]
    ours, theirs = pty.openpty()
    as_make_does = ["setsid", "--ctty", "sh", "-c", 'trap "" HUP; "$@"; true', "sh", *command]
    with subprocess.Popen(as_make_does, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        said = b""
        while b"Ctrl-C drains" not in said:
            said += os.read(ours, 65536)
        assert fresh.pids("llama_server")
        os.close(ours)

    for module in ("stoker.control.supervisor", "stoker.control", "stoker.gateway", "llama_server"):
        assert fresh.pids(module) == []
