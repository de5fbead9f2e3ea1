"""The table of limits: over workers, over their deaths, and when the file is lost."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.base.errors import Driver
from stoker.decide.quota.level import DAY_SECONDS, Demand, Refusal
from stoker.drivers.limits.table import Table
from stoker.facts.routes import Limits

NOW = 20_000.5 * DAY_SECONDS
DAY = 20_000


def demand(name: str = "a", **limits: int) -> Demand:
    return Demand(name, Limits(**limits), f"caller {name}")


def table(folder: Path, worker: int = 0) -> Table:
    return Table(folder / "limits", worker)


def ask(limits: Table, *demands: Demand, tokens: int = 0, now: float = NOW) -> Refusal | None:
    return limits.reserve(demands, tokens=tokens, now=now).refusal


def test_nothing_is_taken_from_any_scope_when_one_refuses(tmp_path: Path) -> None:
    limits = table(tmp_path)
    caller, model = demand("a", requests_per_minute=5, concurrent=5), demand("m", tokens_per_minute=100)
    assert ask(limits, caller, model, tokens=60) is None
    refusal = ask(limits, caller, model, tokens=60)

    assert refusal is not None
    assert (refusal.limit, refusal.whose, refusal.retry_after) == ("tokens_per_minute", "caller m", pytest.approx(12))
    assert (limits.running("a"), limits.level(caller, now=NOW).requests) == (1, 4)
    limits.settle((caller, model), reserved=60, used=0, now=NOW, request=False)
    assert (limits.running("a"), limits.level(caller, now=NOW).requests) == (0, 5)
    assert limits.level(model, now=NOW).tokens == 100


def test_tokens_are_settled_and_a_debt_waits(tmp_path: Path) -> None:
    limits, rule = table(tmp_path), demand(tokens_per_minute=100, tokens_per_day=1000)
    assert ask(limits, rule, tokens=10) is None
    limits.settle((rule,), reserved=10, used=250, now=NOW)
    refusal = ask(limits, rule, tokens=10)
    assert refusal is not None
    assert refusal.limit == "tokens_per_minute"
    assert ask(limits, rule, tokens=10, now=NOW + refusal.retry_after + 0.1) is None
    limits.settle((rule,), reserved=10, used=750, now=NOW + 120)
    late = ask(limits, rule, tokens=1, now=NOW + 1000)
    assert late is not None
    assert late.limit == "tokens_per_day"
    assert ask(limits, rule, tokens=1, now=NOW + DAY_SECONDS) is None  # another day


def test_what_somebody_else_allowed_is_counted_whatever_is_left(tmp_path: Path) -> None:
    limits, rule = table(tmp_path), demand(requests_per_minute=1, tokens_per_minute=10)
    for _ in range(3):
        assert limits.reserve((rule,), tokens=10, now=NOW, force=True).refusal is None

    assert limits.level(rule, now=NOW).tokens == -20
    assert limits.level(rule, now=NOW).spent == 30


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=60), st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_requests_at_once_are_exact_over_workers(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]], most: int
) -> None:
    folder = tmp_path_factory.mktemp("limits")
    workers, rule, running = (table(folder, 0), table(folder, 1)), demand(concurrent=most), [0, 0]
    for which, begins in steps:
        if begins:
            granted = ask(workers[which], rule) is None
            assert granted == (sum(running) < most)
            running[which] += granted
        elif running[which]:
            workers[which].settle((rule,), reserved=0, used=0, now=NOW)
            running[which] -= 1
        assert workers[0].running("a") == sum(running)
    for worker in workers:
        worker.close()


def _compete(folder: Path, worker: int, rounds: int, out: Path) -> None:
    """Ask as fast as it goes, hold some, end in every way; one clock tick for all, so that nothing refills."""
    limits = table(folder, worker)
    caller = demand("a", requests_per_minute=3000, tokens_per_minute=20_000, tokens_per_day=20_000, concurrent=5)
    model = demand("m", concurrent=4, tokens_per_minute=50_000)
    admitted = used = 0
    for turn in range(rounds):
        if ask(limits, caller, model, tokens=20) is None:
            if limits.running("a") > 5 or limits.running("m") > 4:
                os._exit(1)
            spent = (0, 20, 13)[turn % 3]
            counts = spent > 0
            limits.settle((caller, model), reserved=20, used=spent, now=NOW, request=counts)
            admitted += counts
            used += spent
    out.write_text(f"{admitted} {used}")
    os._exit(0)


@pytest.mark.e2e
def test_four_workers_never_exceed_a_limit_together(tmp_path: Path) -> None:
    table(tmp_path).close()
    context = multiprocessing.get_context("spawn")
    outs = [tmp_path / f"out{n}" for n in range(4)]
    workers = [context.Process(target=_compete, args=(tmp_path, n, 3000, outs[n])) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(50)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    admitted, used = (sum(int(out.read_text().split()[part]) for out in outs) for part in (0, 1))

    limits = table(tmp_path, 5)
    caller = demand("a", requests_per_minute=3000, tokens_per_minute=20_000, tokens_per_day=20_000)
    level = limits.level(caller, now=NOW)
    assert used <= 20_000
    assert used > 19_900  # and all of it could be used
    assert (level.requests, level.tokens, level.spent) == (3000 - admitted, 20_000 - used, used)
    assert (limits.running("a"), limits.running("m")) == (0, 0)


HOLDER = """
import sys, time
from pathlib import Path
from stoker.decide.quota.level import Demand
from stoker.drivers.limits.table import Table
from stoker.facts.routes import Limits
limits = Table(Path(sys.argv[1]), 3)
limits.reserve((Demand("a", Limits(concurrent=2), ""),), tokens=0, now=1.0)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.e2e
def test_a_killed_worker_holds_nothing_even_when_its_number_never_comes_back(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "limits")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        one = table(tmp_path, 0)
        assert one.running("a") == 1  # it lives
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    assert table(tmp_path, 1).running("a") == 0


def test_no_row_says_less_than_the_ledger(tmp_path: Path) -> None:
    limits, rule = table(tmp_path), demand(tokens_per_day=1000)
    limits.recall({"a": 950}, day=DAY)
    refusal = ask(limits, rule, tokens=100)
    assert refusal is not None
    assert refusal.limit == "tokens_per_day"
    assert ask(limits, rule, tokens=50) is None  # and no more than it
    other = table(tmp_path, 1)
    other.recall({"a": 950}, day=DAY)
    assert other.level(rule, now=NOW).spent == 1000  # what was reserved since is not forgotten
    other.recall({"a": 700}, day=DAY - 1)
    assert other.level(rule, now=NOW).spent == 1000


def test_a_lost_file_loses_no_count(tmp_path: Path) -> None:
    one, two = table(tmp_path, 0), table(tmp_path, 1)
    rule = demand(requests_per_minute=10, tokens_per_day=1000, concurrent=2)
    assert ask(one, rule, tokens=300) is None
    assert ask(two, rule, tokens=300) is None
    (tmp_path / "limits").unlink()
    for worker in (one, two):
        worker.look()

    assert one.running("a") == 2
    assert one.level(rule, now=NOW).spent == 600
    assert one.level(rule, now=NOW).requests == 8
    refusal = ask(two, rule)
    assert refusal is not None
    assert refusal.limit == "concurrent"
    one.settle((rule,), reserved=300, used=10, now=NOW)
    assert two.level(rule, now=NOW).spent == 310
    two.look()  # the same file: nothing happens
    assert two.running("a") == 1


def test_a_worker_without_a_column_is_told(tmp_path: Path) -> None:
    with pytest.raises(Driver, match="no column"):
        table(tmp_path, 99)
