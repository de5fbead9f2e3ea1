"""`stoker bench` as a person uses it, against the scripted engine in a process of its own."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.e2e.machine import ATTENTIVE

from stoker.bench import result as results
from stoker.decide.measure.classes import Class
from stoker.drivers.hosts.rehearsal import Known, known

pytestmark = pytest.mark.e2e

STEADY: dict[str, object] = {"tokens": 12, "tokens_per_second": 200.0, "first_token_seconds": 0.05, "calls": 0}
BENCH = [sys.executable, "-m", "stoker.cli.main", "bench"]
SHORT = ("--duration", "2s", "--scale", "32", "--profile", "chat")


@pytest.fixture(scope="module")
def engine() -> Iterator[Known]:
    with known(slots=8) as running:
        yield running


@pytest.fixture(autouse=True)
def steady(engine: Known) -> None:
    engine.play(STEADY)  # type: ignore[arg-type]


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*BENCH, *words], capture_output=True, text=True, timeout=120, check=False)


def on_time(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run it until the generator was on time: on a machine with other work a step is rightly not measured."""
    for _ in range(5):
        done = bench(*words)
        if not re.search(r"the generator('s loop was| sent| stood)", done.stdout):
            break
    return done


def test_a_run_counts_measures_and_leaves_a_report(engine: Known, tmp_path: Path) -> None:
    bar = tmp_path / "bar.yaml"
    bar.write_text("visible_ttft_p90_seconds: 1\nerror_rate: 0.01\n")
    out = tmp_path / "out"
    done = on_time("run", engine.url, "-c", "4", "--bar", str(bar), "--out", str(out), "--usd-per-hour", "2.9", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "the bar was met" in done.stdout
    assert "US dollars per million output tokens" in done.stdout
    assert "tool_parse_failed" in done.stdout  # the table of classes

    found = results.read(out)
    (step,) = found.steps
    assert step.passed
    assert step.measured > 20
    assert step.times.visible_ttft.p50 == pytest.approx(0.05, abs=0.02)
    assert len(results.samples(out, found)[0]) >= step.measured
    assert found.command.startswith("stoker bench run")
    page = (out / "report.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace(engine.url, "").replace("http://www.w3.org/2000/svg", "")  # nothing is loaded

    again = bench("import", str(_vllm_result(tmp_path)), "--beside", str(out))
    assert again.returncode == 0, again.stderr
    assert "vllm theirs" in (out / "report.html").read_text()


def _vllm_result(folder: Path) -> Path:
    file = folder / "theirs.json"
    rows = {"output_throughput": 300.0, "request_throughput": 25.0, "median_ttft_ms": 60.0, "p90_ttft_ms": 70.0}
    file.write_text(json.dumps({**rows, "median_tpot_ms": 5.0, "max_concurrency": 4, "request_rate": "inf"}))
    return file


def test_a_bar_that_is_failed_is_an_exit_code_and_refusals_count(engine: Known, tmp_path: Path) -> None:
    engine.play({**STEADY, "rota": [{}, {}, {}, {"status": 429}]})  # type: ignore[dict-item]
    done = on_time("run", engine.url, "-c", "4", "--bar", "chat", "-o", "json", *SHORT)
    assert done.returncode == 1
    (step,) = json.loads(done.stdout)["steps"]
    assert step["passed"] is False
    assert step["failed_share"] == pytest.approx(0.25, abs=0.05)
    assert step["classes"]["rejected"] == pytest.approx(step["measured"] / 4, rel=0.2)
    assert sum(step["classes"].values()) == step["scheduled"]


def test_a_ramp_gives_a_capacity_or_says_what_it_cannot(engine: Known, tmp_path: Path) -> None:
    bar = tmp_path / "bar.yaml"
    bar.write_text("visible_ttft_p90_seconds: 0.15\n")
    more = ("--bar", str(bar), "--from", "60", "--duration", "0.6s", "--scale", "32")
    quick = bench("ramp", engine.url, "--quick", *more)
    assert quick.returncode == 0, quick.stderr
    assert "this does not say a capacity" in quick.stdout

    for _ in range(3):  # a machine with other work leaves too few runs that were measured
        done = bench("ramp", engine.url, "--runs", "3", "-o", "json", *more)
        found = json.loads(done.stdout)
        if found["capacity"] and found["capacity"]["verdict"] == "capacity":
            break
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    capacity = found["capacity"]
    true = 8 / (0.05 + 12 / 200)  # eight slots, each taken for so long
    assert capacity["low"] <= capacity["value"] <= capacity["high"]
    assert capacity["value"] == pytest.approx(true, rel=0.4)
    assert "plan with" in found["verdict"]


def test_two_of_a_kind_are_not_different(engine: Known) -> None:
    words = ("-c", "4", "--runs", "4", "--metric", "e2e_p50", "-o", "json", "--duration", "1s", "--scale", "32")
    same = on_time("compare", engine.url, engine.url, *words)
    assert same.returncode == 0, same.stderr
    found = json.loads(same.stdout)
    assert found["pairs"] == 4
    assert not found["different"]


def test_recorded_runs_that_differ_in_more_are_refused(engine: Known, tmp_path: Path) -> None:
    for name, users in (("a", "2"), ("b", "3")):
        words = ("-c", users, "--runs", "3", "--duration", "0.5s", "--scale", "32", "--salt", "s")
        assert bench("run", engine.url, *words, "--out", str(tmp_path / name)).returncode == 0
    refused = bench("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert refused.returncode == 2
    assert "the runs differ also in load" in refused.stderr


def test_ctrl_c_keeps_and_marks_what_was_measured(engine: Known, tmp_path: Path) -> None:
    argv = [
        *ATTENTIVE,
        *BENCH,
        "run",
        engine.url,
        "-c",
        "2",
        "--duration",
        "60s",
        "--scale",
        "32",
        "--out",
        str(tmp_path),
    ]
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(300):
        if len(engine.truth()) > 20:
            break
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=30)
    assert running.returncode == 0
    assert "interrupted: this is what was measured until then" in said
    (step,) = results.read(tmp_path).steps
    assert step.interrupted
    assert step.measured > 5


def test_ctrl_c_in_a_ramp_keeps_its_levels_and_claims_no_capacity(engine: Known, tmp_path: Path) -> None:
    words = ["ramp", engine.url, "--bar", "chat", "--from", "20", "--duration", "2s", "--scale", "32"]
    argv = [*ATTENTIVE, *BENCH, *words, "--out", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("at 20 (seed 1)")
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=30)
    assert running.returncode == 1
    assert "20 requests/s met the bar" in said
    assert "interrupted: this is what was measured until then" in said
    assert "this does not say a capacity" in said
    found = results.read(tmp_path)
    assert [step.interrupted for step in found.steps] == [False, True]
    assert found.capacity is None


def test_a_generator_that_was_stopped_for_a_moment_measures_nothing(engine: Known, tmp_path: Path) -> None:
    argv = [*BENCH, "run", engine.url, "-c", "2", "--bar", "chat", *SHORT, "--out", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        for _ in range(300):
            if len(engine.truth()) > 10:
                break
            time.sleep(0.02)
        running.send_signal(signal.SIGSTOP)
        time.sleep(0.25)
        running.send_signal(signal.SIGCONT)
        said, _ = running.communicate(timeout=30)
    assert running.returncode == 1  # neither passed nor failed; a script must not go on
    assert "not measured: the generator" in said
    (step,) = results.read(tmp_path).steps
    assert step.passed is None
    assert step.late


def test_the_harness_is_right_about_an_engine_whose_truth_is_known() -> None:
    done = bench("selfcheck", "-o", "json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    # What is counted is exact on any machine; what is timed depends on who else works here, and is only printed.
    assert rows["fault mix"]["found"] == "exact"
    assert rows["hidden tokens"]["ok"]
    assert rows["freeze"]["ok"]
    assert set(rows) >= {"ttft mean", "ttft p99", "tpot", "tokens/s", "visible ttft", "cpu a token", "tokens/s a core"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(("run", "http://127.0.0.1:1", "-c", "2"), "URL: GET http://127.0.0.1:1/v1/models", id="nobody"),
        pytest.param(("run", "ftp://x", "-c", "2"), "'ftp://x' is no URL", id="no URL"),
        pytest.param(("run", "{url}", "-c", "2", "-m", "rehearsl"), "did you mean 'rehearsal'?", id="model"),
        pytest.param(("run", "{url}"), "say how large the load is", id="no load"),
        pytest.param(("run", "{url}", "-c", "2", "-r", "3"), "say how large the load is", id="two loads"),
        pytest.param(("run", "{url}", "-c", "2", "--profile", "chats"), "--profile: there is no traffic", id="profile"),
        pytest.param(("run", "{url}", "-c", "2", "--bar", "chatt"), "--bar: there is no bar 'chatt'", id="bar"),
        pytest.param(
            ("run", "{url}", "-c", "2", "--bar", "{dir}/b.yaml"), "there is no such metric", id="metric of a bar"
        ),
        pytest.param(
            ("run", "{url}", "--trace", "{dir}/t.csv"), "t.csv:3: '' is no count of tokens", id="trace with a hole"
        ),
        pytest.param(("run", "{url}", "-c", "2", "--dialect", "chats"), "did you mean 'chat'?", id="dialect"),
        pytest.param(("run", "{url}", "-c", "2", "--extra", "[1]"), "--extra: it is no JSON object", id="extra"),
        pytest.param(("ramp", "{url}"), "write down what good means before you measure", id="ramp without a bar"),
        pytest.param(
            ("compare", "{url}", "{url}", "-c", "1", "--metric", "tpot"), "--metric: there is no metric", id="what"
        ),
        pytest.param(("import", "{dir}/b.yaml"), "b.yaml: it is no JSON", id="no result"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    engine: Known, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    (tmp_path / "b.yaml").write_text("ttft_p95_secs: 2\n")
    (tmp_path / "t.csv").write_text("timestamp,input_length,output_length\n0,10,5\n1,,4\n")
    done = bench(*(word.format(url=engine.url, dir=tmp_path) for word in words))
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_wrong_key_is_told(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("right")
    argv = [sys.executable, "-m", "stoker.rehearse", "--port", "0", "--secret-file", str(secret)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as locked:
        assert locked.stderr is not None
        url = "http://" + locked.stderr.readline().partition("listening on ")[2].partition(",")[0]
        done = bench("run", url, "-c", "1", "--key", "wrong")
        locked.terminate()
    assert done.returncode == 2
    assert "--key" in done.stderr
    assert "wrong" not in done.stderr.replace("a wrong key", "")


def test_classes_are_documented() -> None:
    assert {name for name, _ in results.Result.__struct_defaults__[-1]} == {kind.value for kind in Class}
    assert msgspec.json.schema(results.Result)["$ref"] == "#/$defs/Result"


def test_checks_compare_answers_at_rest_and_under_load(engine: Known) -> None:
    engine.play({"text": "42", "calls": 0, "rota": [{}, {}, {}, {"status": 503}]})  # type: ignore[dict-item]
    for dialect in ("chat", "messages", "responses"):
        done = bench("checks", engine.url, "--dialect", dialect, "-o", "json")
        found = {row["kind"]: row for row in json.loads(done.stdout)["rows"]}
        assert done.returncode == 0, done.stderr
        assert found["arithmetic"]["rest_right"] <= 1  # 42 is right once
        assert found["arithmetic"]["rest_right"] + found["arithmetic"]["rest_wrong"] < 6
        assert sum(row["not_measured"] for row in found.values()) >= 8  # refused is not wrong
    engine.play({"text": "42", "calls": 0, "repeat_above_running": 3, "tokens_per_second": 400.0})  # type: ignore[dict-item]
    loaded = bench("checks", engine.url, "-c", "8", "--duration", "3s", "--scale", "8", "-o", "json")
    told = json.loads(loaded.stdout)
    assert loaded.returncode == 1
    assert told["changed"] == ["arithmetic-1"]
    assert sum(row["load_right"] + row["load_wrong"] for row in told["rows"]) > 20
