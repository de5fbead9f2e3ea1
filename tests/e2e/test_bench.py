"""The benchmark on the real llama.cpp behind the gateway: what it says is what the ledger has."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.machine import Machine

from stoker.bench import result as results

QUESTIONS = 3  # that are asked before the clock runs


def bench(*words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "stoker.cli.main", "bench", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def ledger(made: Machine) -> Counter[tuple[int, int]]:
    records = made.data("usage", "--records", "--limit", "10000")["items"]
    return Counter((row["prompt_tokens"], row["output_tokens"]) for row in records if row["output_tokens"])


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_real_engine_behind_the_gateway(shared: Machine, tmp_path: Path, dialect: str) -> None:
    before = ledger(shared)
    more = ("--dialect", dialect, "-c", "3", "--duration", "3s", "--scale", "4", "--usd-per-hour", "1xH200")
    done = bench("run", shared.url, "--key", shared.key, "--out", str(tmp_path), *more)
    assert done.returncode == 0, done.stderr
    assert shared.key not in done.stdout + (tmp_path / "report.html").read_text()
    assert shared.key not in (tmp_path / "result.json").read_text()

    found = results.read(tmp_path)
    (step,), (rows,) = found.steps, results.samples(tmp_path, found)
    assert step.measured >= 3
    assert step.failed_share == 0
    assert step.tokens.estimated_requests == 0
    # Nobody has a tokenizer; three short questions make first turns as long as the script says.
    first = [row for row in rows if row.turn == 1 and row.asked_prompt_tokens > 60]
    asked = sum(row.asked_prompt_tokens for row in first)
    assert sum(row.tokens.prompt for row in first) == pytest.approx(asked, rel=0.15)
    assert all(row.first_byte_seconds <= row.first_token_seconds <= row.total_seconds for row in rows if row.good)
    assert step.money is not None

    said = Counter((row.tokens.prompt, row.tokens.output) for row in rows if row.tokens.output)
    shared.wait("the ledger has them", lambda: (ledger(shared) - before).total() >= said.total() + QUESTIONS)
    held = ledger(shared) - before
    assert said - held == Counter()  # every count that we report was billed so
    assert (held - said).total() == QUESTIONS


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--key", "sk-stoker-wrong"), "--key: it answered 401"),
        (("-m", "tinny"), "did you mean 'tiny'?"),
    ],
)
def test_mistakes_at_the_gateway_are_one_line(shared: Machine, words: tuple[str, ...], told: str) -> None:
    key = () if "--key" in words else ("--key", shared.key)
    done = bench("run", shared.url, "-c", "1", *key, *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_prompts_that_do_not_fit_are_told_with_what_to_do(shared: Machine) -> None:
    words = ("run", shared.url, "--key", shared.key, "-c", "1", "--duration", "2s", "--profile", "long-chat")
    assert "prompts longer than the model takes" in bench(*words).stdout
    assert "prompts longer" not in bench(*words, "--context", "600").stdout
