"""Guided experiments: what their reports say follows from their numbers, whatever those are."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stoker.base.errors import Invalid
from stoker.bench.labs.known import LABS, find, predicted
from stoker.decide.measure.summary import Spread, Step, Taken, summarise
from stoker.drivers.hosts.rehearsal import Known, known

EMPTY = summarise(
    Taken(
        load=1,
        unit="concurrency",
        seed=1,
        seconds=1.0,
        samples=(),
        gaps_seconds=[],
        loop_lags_seconds=[],
        cpu_seconds=0,
    ),
    None,
)


def step(*, in_flight: float, rate: float, wait: float, cached: float = 0.0) -> Step:
    times = msgspec.structs.replace(EMPTY.times, visible_ttft=Spread(count=9, p50=wait))
    tokens = msgspec.structs.replace(EMPTY.tokens, per_second=rate, cached_share=cached)
    return msgspec.structs.replace(EMPTY, in_flight=in_flight, times=times, tokens=tokens)


def told(lab: str, *steps: Step) -> str:
    return " ".join(find(lab).read(steps))


def test_batching_is_no_gift_only_where_it_was_none() -> None:
    one = step(in_flight=1, rate=10, wait=0.1)
    ten = step(in_flight=10, rate=80, wait=0.15)
    slow, fast = step(in_flight=50, rate=90, wait=1.0), step(in_flight=50, rate=480, wait=0.2)
    assert "50 times as many requests at once gave 9.0 times the tokens" in told("concurrency", one, ten, slow)
    assert "no gift" in told("concurrency", one, ten, slow)
    assert "10.0 times as late" in told("concurrency", one, ten, slow)
    assert "no gift" not in told("concurrency", one, ten, fast)
    assert "with 50 in flight" in told("concurrency", one, ten, fast)


def test_sessions_are_served_until_the_first_word_is_late() -> None:
    steps = [step(in_flight=n, rate=10, wait=w) for n, w in ((1, 0.1), (2, 0.12), (4, 0.19), (8, 0.5))]
    assert "Up to 4 sessions" in told("sessions", *steps)
    assert "With 8 it took 5.0 times as long" in told("sessions", *steps)
    assert "the real limit lies above" in told("sessions", *steps[:3])
    assert "| 8 | 4 | -50% |" in predicted(steps, 8)


def test_a_cache_that_is_off_is_told() -> None:
    off = step(in_flight=2, rate=10, wait=0.1)
    front = step(in_flight=2, rate=10, wait=0.1, cached=0.8)
    behind = step(in_flight=2, rate=10, wait=0.4, cached=0.0)
    assert "80% of the prompt came from the cache; behind: 0%" in told("prefix", front, behind)
    assert "4.0 times as late" in told("prefix", front, behind)
    assert "is the engine's prefix cache on" in told("prefix", off, off)


def test_a_lab_that_is_not_there_is_named() -> None:
    with pytest.raises(Invalid, match="did you mean 'concurrency'"):
        find("concurrenc")
    assert {lab.name for lab in LABS} == {"concurrency", "sessions", "prefix", "models"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Known]:
    with known(slots=8) as running:
        running.play({"tokens": 10, "tokens_per_second": 200.0, "first_token_seconds": 0.02, "calls": 0})
        yield running


@pytest.mark.e2e
@pytest.mark.parametrize("lab", ["concurrency", "prefix", "models", "failure"])
def test_a_lab_writes_its_report(engine: Known, tmp_path: Path, lab: str) -> None:
    words = [] if lab == "failure" else [engine.url, "--duration", "1s", "--scale", "32"]
    words += ["--model-b", engine.model, "--usd-per-hour", "2"] if lab == "models" else []
    argv = [sys.executable, "-m", "stoker.cli.main", "bench", "labs", "run", lab, *words, "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "lab.md").read_text()
    for part in ("**Question.**", "**Set-up.**", "**Method.**", "**Numbers.**", "**Surprise.**", "**Reproduce.**"):
        assert part in text
    report = json.loads((tmp_path / "lab.json").read_text())
    assert len(report["rows"]) == {"concurrency": 3, "prefix": 2, "models": 2, "failure": 2}[lab]
    if lab == "models":
        assert text.count("## Checks:") == 2
        assert "$2 an hour" in text
    if lab == "failure":
        assert ["truncated", "20"] in report["rows"]
        assert "Runbook" in text


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("prefix",), "this lab needs an endpoint"),
        (("models", "http://127.0.0.1:1"), "this lab compares two models"),
        (("prefx", "http://127.0.0.1:1"), "did you mean 'prefix'?"),
    ],
)
def test_bad_words(words: tuple[str, ...], told: str) -> None:
    argv = [sys.executable, "-m", "stoker.cli.main", "bench", "labs", "run", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert told in done.stderr
