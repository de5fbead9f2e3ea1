"""The ladder of one replica, rung by rung, and what is promised about its end."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.conditions import yes
from stoker.decide.replica import (
    LADDER,
    Ask,
    Check,
    Decision,
    Fetch,
    Forget,
    Memory,
    Policy,
    Published,
    Seen,
    Start,
    Stop,
    Trouble,
    reconcile,
)
from stoker.facts.observed import ExitFile, Phase, RunFile, Running
from stoker.facts.routes import State

NOW = 1_000.0
POLICY = Policy(startup=60, generate=30, drain=20, grace=5)
OK = Check(ok=True, at=NOW)


def running(attempt: int = 1, phase: Phase = Phase.RUNNING, spec_hash: str = "h") -> Running:
    run = RunFile(
        name=f"u-{attempt}",
        uid="u",
        attempt=attempt,
        boot_id="b",
        shim_pid=1,
        shim_start_ticks=1,
        spec_hash=spec_hash,
        port=1,
        started_at=5.0,
    )
    ended = ExitFile(name=run.name, at=NOW, code=1) if phase is Phase.EXITED else None
    return Running(run=run, phase=phase, exit=ended)


SEEN = Seen(accepted=yes("Accepted", "SpecValid"), files=OK, preflight=OK, devices=("cpu",), spec_hash="h")
UP = Memory(attempt=1, started_at=NOW - 10)
LOADED = msgspec.structs.replace(UP, loaded_at=NOW - 8)
GENERATES = msgspec.structs.replace(LOADED, generates_at=NOW - 7)
ROUTABLE = msgspec.structs.replace(GENERATES, routable_at=NOW - 6)
LIVE = replace(SEEN, running=running())


def decide(seen: Seen, memory: Memory, *, retired: bool = False, now: float = NOW) -> Decision:
    return reconcile(seen, retired=retired, memory=memory, policy=POLICY, now=now)


def bad(reason: str, since: float = NOW, at: float = NOW) -> Check:
    return Check(ok=False, at=at, reason=reason, message="m", failing_since=since)


@pytest.mark.parametrize(
    ("seen", "memory", "actions", "route"),
    [
        pytest.param(replace(SEEN, files=None), Memory(), (Fetch(),), None, id="nobody has looked for files: fetch"),
        pytest.param(replace(SEEN, files=bad("Absent")), Memory(), (Fetch(),), None, id="absent: fetch"),
        pytest.param(replace(SEEN, files=bad("Fetching")), Memory(), (), None, id="fetching: wait"),
        pytest.param(
            replace(SEEN, files=bad("HubDenied")), Memory(), (), None, id="a person must act: do not hammer the hub"
        ),
        pytest.param(
            replace(SEEN, preflight=bad("LicenceNotAccepted")), Memory(), (), None, id="not preflighted: nothing starts"
        ),
        pytest.param(replace(SEEN, devices=None, no_room="full"), Memory(), (), None, id="no room: nothing starts"),
        pytest.param(SEEN, Memory(), (Start(attempt=1, devices=("cpu",)),), None, id="start"),
        pytest.param(SEEN, Memory(attempt=3, failures=1, retry_at=NOW + 5), (), None, id="back-off holds"),
        pytest.param(
            SEEN,
            Memory(attempt=3, failures=1, retry_at=NOW),
            (Start(attempt=4, devices=("cpu",)),),
            None,
            id="back-off over",
        ),
        pytest.param(LIVE, UP, (Ask(question="loaded"),), None, id="up: is it loaded?"),
        pytest.param(replace(LIVE, loaded=OK), UP, (Ask(question="generates"),), None, id="loaded: does it generate?"),
        pytest.param(replace(LIVE, generates=OK), LOADED, (), State.PROBE, id="generates: let probes through"),
        pytest.param(
            replace(LIVE, published=Published(state=State.PROBE, acknowledged=False)),
            GENERATES,
            (),
            State.PROBE,
            id="not all workers know it yet",
        ),
        pytest.param(
            replace(LIVE, published=Published(state=State.PROBE, acknowledged=True)),
            GENERATES,
            (Ask(question="routable"),),
            State.PROBE,
            id="all know it: ask through the gateway",
        ),
        pytest.param(
            replace(LIVE, routable=OK, published=Published(state=State.PROBE, acknowledged=True), health=OK),
            GENERATES,
            (),
            State.SERVE,
            id="routable: serve",
        ),
        pytest.param(
            replace(LIVE, health=bad("x", at=NOW - 9)),
            ROUTABLE,
            (Ask(question="health"),),
            State.SERVE,
            id="keep asking",
        ),
    ],
)
def test_next_step(seen: Seen, memory: Memory, actions: tuple[object, ...], route: State | None) -> None:
    got = decide(seen, memory)

    assert got.actions == actions
    assert got.route is route


def test_a_clock_that_was_set_back_stops_neither_retries_nor_checks() -> None:
    day = 86400.0
    retried = decide(SEEN, Memory(attempt=3, failures=1, retry_at=NOW + day))
    stale = replace(LIVE, loaded=OK, generates=OK, routable=OK, health=Check(ok=True, at=NOW + day))

    assert any(isinstance(action, Start) for action in retried.actions)
    assert any(isinstance(action, Ask) and action.question == "health" for action in decide(stale, ROUTABLE).actions)


def test_ready_needs_every_rung_and_names_the_first_that_is_missing() -> None:
    got = decide(replace(LIVE, loaded=bad("Loading")), UP)
    ready = next(c for c in got.conditions if c.type == "Ready")

    assert [c.type for c in got.conditions] == [*LADDER, "Ready"]
    assert (ready.status, ready.reason) == ("False", "Loading")
    full = decide(replace(LIVE, health=OK), ROUTABLE)
    assert {c.status for c in full.conditions} == {"True"}


def test_an_open_port_is_not_ready() -> None:
    got = decide(replace(LIVE, loaded=OK, generates=bad("GenerationFailed")), LOADED)

    assert got.route is None
    assert next(c for c in got.conditions if c.type == "Generates").status == "False"


@pytest.mark.parametrize(
    ("seen", "memory", "reason"),
    [
        pytest.param(
            LIVE, msgspec.structs.replace(UP, started_at=NOW - 61), "StartupDeadlineExceeded", id="never loaded"
        ),
        pytest.param(
            LIVE, msgspec.structs.replace(LOADED, loaded_at=NOW - 31), "GeneratesNothing", id="alive but dead"
        ),
        pytest.param(replace(LIVE, health=bad("x", since=NOW - 21)), ROUTABLE, "NoForwardProgress", id="hangs"),
    ],
)
def test_what_makes_no_progress_is_ended(seen: Seen, memory: Memory, reason: str) -> None:
    got = decide(seen, memory)

    assert got.actions == (Stop(name="u-1", grace=5),)
    assert got.memory.trouble is not None
    assert got.memory.trouble.reason == reason


def test_a_slow_health_while_tokens_come_is_not_death() -> None:
    got = decide(replace(LIVE, health=bad("x", since=NOW - 100), last_token_at=NOW - 1), ROUTABLE)

    assert not any(isinstance(a, Stop) for a in got.actions)


@pytest.mark.parametrize("phase", [Phase.EXITED, Phase.LOST])
def test_a_dead_attempt_is_explained_forgotten_and_retried_later(phase: Phase) -> None:
    seen = replace(SEEN, running=running(phase=phase), explained=Trouble(reason="OutOfMemory", message="m", action="a"))
    got = decide(seen, ROUTABLE)

    assert got.actions == (Forget(name="u-1"),)
    assert got.route is None
    assert got.memory == Memory(attempt=1, failures=1, crashes=1, retry_at=NOW + 1, trouble=seen.explained)
    assert next(c for c in got.conditions if c.type == "Started").reason == "OutOfMemory"


def test_back_off_doubles_up_to_its_limit_and_a_long_service_starts_it_anew() -> None:
    dead = replace(SEEN, running=running(phase=Phase.EXITED))
    waits = [decide(dead, msgspec.structs.replace(UP, failures=n)).memory.retry_at - NOW for n in range(12)]
    served = decide(dead, msgspec.structs.replace(ROUTABLE, failures=9, routable_at=NOW - 700))

    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == POLICY.longest_retry
    assert served.memory.failures == 1


def test_an_engine_that_runs_is_adopted_when_the_state_is_older() -> None:
    got = decide(replace(SEEN, leftovers=(running(attempt=4),)), Memory(attempt=2))

    assert got.actions == ()
    assert (got.memory.attempt, got.memory.started_at) == (4, 5.0)


def test_an_engine_of_another_spec_is_not_adopted() -> None:
    got = decide(replace(SEEN, leftovers=(running(attempt=4, spec_hash="other"),)), Memory(attempt=2))

    assert Stop(name="u-4", grace=0.0) in got.actions


DRAINING = Published(state=State.DRAIN, acknowledged=True)


@pytest.mark.parametrize(
    ("seen", "memory", "stops"),
    [
        pytest.param(
            replace(LIVE, published=Published(state=State.SERVE, acknowledged=True), in_flight=0),
            ROUTABLE,
            False,
            id="still served",
        ),
        pytest.param(
            replace(LIVE, published=Published(state=State.DRAIN, acknowledged=False), in_flight=0),
            ROUTABLE,
            False,
            id="not acknowledged",
        ),
        pytest.param(replace(LIVE, published=DRAINING, in_flight=2), ROUTABLE, False, id="busy"),
        pytest.param(replace(LIVE, published=DRAINING, in_flight=None), ROUTABLE, False, id="unknown is not zero"),
        pytest.param(replace(LIVE, published=DRAINING, in_flight=0), ROUTABLE, True, id="drained"),
        pytest.param(
            replace(LIVE, published=DRAINING, in_flight=2),
            msgspec.structs.replace(ROUTABLE, drain_at=NOW - 21),
            True,
            id="limit",
        ),
        pytest.param(
            replace(LIVE, published=DRAINING, in_flight=None, gateway_gone=True),
            ROUTABLE,
            True,
            id="no gateway, nothing in flight",
        ),
        pytest.param(LIVE, UP, True, id="never served"),
    ],
)
def test_drain(seen: Seen, memory: Memory, stops: bool) -> None:  # noqa: FBT001 - a table column
    got = decide(seen, memory, retired=True)

    assert any(isinstance(a, Stop) for a in got.actions) is stops
    assert not got.gone


def test_a_retired_replica_is_gone_only_when_every_attempt_is() -> None:
    assert not decide(replace(LIVE, published=DRAINING, in_flight=0), ROUTABLE, retired=True).gone
    got = decide(replace(SEEN, running=running(phase=Phase.EXITED)), ROUTABLE, retired=True)
    assert got.gone
    assert got.actions == (Forget(name="u-1"),)


checks = st.none() | st.builds(
    Check, ok=st.booleans(), at=st.floats(NOW - 50, NOW), failing_since=st.floats(NOW - 50, NOW)
)


@given(
    phase=st.sampled_from(list(Phase)) | st.none(),
    loaded=checks,
    generates=checks,
    routable=checks,
    health=checks,
    started=st.sampled_from([0.0, NOW - 10, NOW - 100]),
    rungs=st.integers(0, 3),
    published=st.none() | st.builds(Published, state=st.sampled_from(list(State)), acknowledged=st.booleans()),
    in_flight=st.none() | st.integers(0, 3),
    retired=st.booleans(),
)
def test_nobody_reaches_a_replica_that_is_not_proven_and_every_decision_tells_why(
    *,
    phase: Phase | None,
    loaded: Check | None,
    generates: Check | None,
    routable: Check | None,
    health: Check | None,
    started: float,
    rungs: int,
    published: Published | None,
    in_flight: int | None,
    retired: bool,
) -> None:
    times = [NOW - 5] * rungs + [0.0] * (3 - rungs) if started else [0.0] * 3
    memory = Memory(attempt=1, started_at=started, loaded_at=times[0], generates_at=times[1], routable_at=times[2])
    seen = replace(
        SEEN,
        running=running(phase=phase) if phase is not None and started else None,
        loaded=loaded,
        generates=generates,
        routable=routable,
        health=health,
        published=published,
        in_flight=in_flight,
    )
    got = decide(seen, memory, retired=retired)

    assert got.route is not State.SERVE or (got.memory.routable_at and not retired)
    assert any(c.type == "Ready" for c in got.conditions)
    assert all(c.reason for c in got.conditions)
    assert not any(isinstance(a, Start) for a in got.actions) or got.memory.started_at == NOW
    if got.gone:
        assert seen.running is None or seen.running.phase in (Phase.EXITED, Phase.LOST)
