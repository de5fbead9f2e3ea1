"""A check that cannot fail checks nothing: each judge sees what is wrong."""

import msgspec
import pytest
from tests.bench.made import sample, taken

from stoker.bench.selfcheck import checks
from stoker.bench.selfcheck.checks import Row
from stoker.decide.measure.classes import Class
from stoker.drivers.hosts.rehearsal import Truth
from stoker.facts.record import Tokens

TRUTH = [Truth(first_token_seconds=0.2, last_token_seconds=0.3, tokens=11) for _ in range(8)]
GOOD = [sample(i) for i in range(8)]


def failed(rows: list[Row]) -> set[str]:
    return {row.name for row in rows if not row.ok}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({}, set()),
        ({"first_token_seconds": 0.202, "last_token_seconds": 0.302}, set()),
        ({"first_token_seconds": 0.204, "last_token_seconds": 0.304}, {"ttft mean"}),
        ({"first_token_seconds": 0.215, "last_token_seconds": 0.315}, {"ttft mean", "ttft p99"}),
        ({"last_token_seconds": 0.3008}, {"tpot"}),
        ({"last_token_seconds": 0.3015}, {"tpot", "tokens/s"}),
    ],
)
def test_times_that_are_off_are_seen(change: dict[str, float], want: set[str]) -> None:
    made = taken([msgspec.structs.replace(each, **change) for each in GOOD])
    assert failed(checks.timing(made, TRUTH)) == want


def test_an_answer_that_is_missing_is_seen() -> None:
    assert failed(checks.timing(taken(GOOD[1:]), TRUTH)) == {"timing"}


def test_one_fault_counted_as_another_is_seen() -> None:
    kinds = [kind for kind, count in checks.TRUE_MIX.items() for _ in range(count)]
    rows = [sample(i, kind=kind) for i, kind in enumerate(kinds)]
    assert failed(checks.mix(rows)) == set()
    cut = next(i for i, kind in enumerate(kinds) if kind is Class.TRUNCATED)
    rows[cut] = sample(cut)  # what six peers make of a clean cut
    (row,) = checks.mix(rows)
    assert not row.ok
    assert row.found == "truncated 9 for 10, complete 71 for 70"


@pytest.mark.parametrize(
    ("visible", "hidden", "want"),
    [
        (0.4, checks.THOUGHTS, set()),
        (0.2, checks.THOUGHTS, {"visible ttft"}),
        (0.4, 0, {"hidden tokens"}),
    ],
)
def test_thoughts_that_are_not_told_apart_are_seen(visible: float, hidden: int, want: set[str]) -> None:
    tokens = Tokens(prompt=9, output=28, reasoning=hidden)
    assert failed(checks.thoughts([sample(0, first_visible_seconds=visible, tokens=tokens)])) == want
    assert failed(checks.thoughts([])) == {"visible ttft", "hidden tokens"}


def test_a_heavy_generator_is_seen() -> None:
    light = taken(GOOD, cpu_seconds=88 * 30e-6)
    assert failed(checks.light(light, TRUTH)) == set()
    assert failed(checks.light(taken(GOOD, cpu_seconds=88 * 70e-6), TRUTH)) == {"cpu a token"}
    assert failed(checks.light(taken(GOOD, cpu_seconds=88 * 120e-6), TRUTH)) == {"cpu a token", "tokens/s a core"}
    late = [msgspec.structs.replace(each, first_token_seconds=0.206) for each in GOOD]
    assert failed(checks.light(taken(late, cpu_seconds=88 * 30e-6), TRUTH)) == {"ttft at that load"}


def test_a_generator_that_stood_still_and_did_not_say_so_is_seen() -> None:
    assert failed(checks.frozen(taken(GOOD, loop_lags_seconds=[0.001] * 100))) == {"freeze"}
    assert failed(checks.frozen(taken(GOOD, loop_lags_seconds=[0.001] * 100 + [0.2]))) == set()
