"""Four real workers on one socket, and no store beside them: rates, tokens and requests at once are exact together."""

import hashlib
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.gateway.test_workers import KEPT, LIMITED, pair, workers_of

from stoker.base import clock
from stoker.decide.quota.level import Demand
from stoker.drivers.limits.table import Table
from stoker.facts.routes import Caller, Callers, Key, Limits, seal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
A_MINUTE = 60


def people(limits: Limits) -> bytes:
    def key(text: str) -> Key:
        return Key(id=text, sha256=hashlib.sha256(text.encode()).hexdigest())

    limited = Caller(name="limited", keys=(key(LIMITED),), limits=limits)
    return seal(Callers(generation=2, callers=(Caller(name="kept", keys=(key(KEPT),)), limited)))


def test_rates_are_exact_over_four_workers_and_one_that_is_killed(tmp_path: Path) -> None:
    with pair(tmp_path, 4) as (four, engine):
        fresh = tmp_path / "callers.new"
        fresh.write_bytes(people(Limits(requests_per_minute=A_MINUTE, tokens_per_day=10**6, concurrent=50)))
        fresh.replace(tmp_path / "callers.json")
        four.wait_for_callers(2)
        began = clock.mono()
        answers = Counter(four.many(LIMITED, 100))
        four.workers[3].send_signal(signal.SIGKILL)  # what it counted stays counted
        four.workers[3].wait(20)
        four.replace(3, signal.SIGKILL)
        answers.update(four.many(LIMITED, 60))
        passed = clock.mono() - began

    assert set(answers) == {200, 429}
    assert A_MINUTE <= answers[200] <= A_MINUTE + passed + 1  # a full level, and what came back meanwhile
    assert engine.served == answers[200]
    records = four.records()
    assert len(workers_of(records)) == 4
    table = Table(tmp_path / "run" / "limits", 9)
    assert table.running("limited") == 0
    spent = table.level(Demand("limited", Limits(), ""), now=clock.now()).spent
    assert spent == 7 * answers[200] == sum(r.tokens.prompt + r.tokens.output for r in records)
