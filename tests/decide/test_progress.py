"""Progress is tokens that come: requests that hang are found out though the health page is good."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.conditions import yes
from stoker.decide.replica import Ask, Check, Memory, Policy, Published, Seen, Stop, Trouble, reconcile
from stoker.facts.observed import ExitFile, Phase, RunFile, Running
from stoker.facts.routes import State

NOW = 10_000.0
POLICY = Policy(stalled=60)
UP = Memory(attempt=1, started_at=NOW - 900, loaded_at=NOW - 900, generates_at=NOW - 900, routable_at=NOW - 900)
GOOD = Check(ok=True, at=NOW)
RUN = RunFile(name="u-1", uid="u", attempt=1, boot_id="b", shim_pid=1, shim_start_ticks=1, spec_hash="h", port=1)
BUSY = Seen(
    accepted=yes("Accepted", "SpecValid"),
    running=Running(run=RUN, phase=Phase.RUNNING),
    health=GOOD,
    published=Published(state=State.SERVE, acknowledged=True),
    in_flight=1,
    last_token_at=NOW - 30,
)


def silence(at: float, since: float) -> Check:
    return Check(ok=False, at=at, reason="NoProgress", message="m", failing_since=since)


@pytest.mark.parametrize(
    ("seen", "actions"),
    [
        pytest.param(BUSY, (Ask(question="progress"),), id="requests and no token: ask"),
        pytest.param(replace(BUSY, last_token_at=NOW - 2), (), id="tokens come"),
        pytest.param(replace(BUSY, in_flight=0), (), id="nobody asks"),
        pytest.param(replace(BUSY, in_flight=None), (), id="unknown load is no suspicion"),
        pytest.param(replace(BUSY, progress=Check(ok=True, at=NOW - 5)), (), id="it answered a moment ago"),
        pytest.param(
            replace(BUSY, in_flight=0, progress=silence(NOW - 5, NOW - 5)),
            (Ask(question="progress"),),
            id="clients gave up, the proof still fails: ask again",
        ),
        pytest.param(
            replace(BUSY, last_token_at=NOW - 90, progress=silence(NOW - 5, NOW - 50)),
            (Stop(name="u-1", grace=POLICY.grace),),
            id="silent for too long, and proven: replace it",
        ),
        pytest.param(
            replace(BUSY, last_token_at=NOW - 90), (Ask(question="progress"),), id="silent for long, but not proven"
        ),
    ],
)
def test_suspicion_and_proof(seen: Seen, actions: tuple[object, ...]) -> None:
    assert reconcile(seen, retired=False, memory=UP, policy=POLICY, now=NOW).actions == actions


def test_what_we_ended_keeps_its_reason() -> None:
    stuck = replace(BUSY, last_token_at=NOW - 90, progress=silence(NOW - 5, NOW - 50))
    ended = reconcile(stuck, retired=False, memory=UP, policy=POLICY, now=NOW)
    by_us = Running(run=RUN, phase=Phase.EXITED, exit=ExitFile(name="u-1", at=NOW, signal=9))
    explained = Trouble(reason="Killed", message="signal 9")
    after = reconcile(
        replace(stuck, running=by_us, explained=explained), retired=False, memory=ended.memory, policy=POLICY, now=NOW
    )
    crashed = reconcile(
        replace(stuck, running=by_us, explained=explained), retired=False, memory=UP, policy=POLICY, now=NOW
    )

    assert after.memory.trouble is not None
    assert after.memory.trouble.reason == "NoForwardProgress"
    assert crashed.memory.trouble == explained


@given(token=st.floats(0, 10_000), in_flight=st.integers(0, 50), ok_at=st.floats(9_000, 10_000))
def test_an_engine_that_answers_is_never_ended_for_silence(token: float, in_flight: int, ok_at: float) -> None:
    seen = replace(BUSY, last_token_at=token, in_flight=in_flight, progress=Check(ok=True, at=ok_at))
    got = reconcile(seen, retired=False, memory=UP, policy=POLICY, now=NOW)

    assert not any(isinstance(action, Stop) for action in got.actions)
