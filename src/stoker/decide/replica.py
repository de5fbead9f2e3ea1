"""What should happen to one replica now, and how far up the ladder is it?

The ladder, each rung only after the one before it:
``Accepted → Preflighted → CacheReady → Scheduled → Started → Loaded → Generates → Routable``; Ready is all of them.

1. A process belongs to an attempt. A dead attempt is explained, forgotten, and followed by the next after a back-off
   that doubles; an attempt that served for ten minutes starts the count anew.
2. Health is forward progress: *Generates* is a real completion from the engine, *Routable* one through the gateway.
   An open port proves nothing.
3. Nobody may reach a replica before it is Routable (`probe`), and none is stopped before every live gateway worker has
   acknowledged `drain` and has no request left on it, or the drain limit has passed.
4. Requests that run while no token comes are a suspicion; a small completion that does not come back either is the
   proof, and the attempt is replaced.
5. Unknown load is never zero: only a gateway that is really gone counts as empty.

Time, memory and everything seen come in; the controller that returns after a crash goes on where it was.
"""

from typing import Final

import msgspec

from stoker.decide.attempt import (
    Action,
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
)
from stoker.decide.conditions import Condition, no, unknown, yes
from stoker.facts.observed import Phase
from stoker.facts.routes import State

__all__ = [  # in the words of `attempt`
    "LADDER",
    "Action",
    "Ask",
    "Check",
    "Decision",
    "Fetch",
    "Forget",
    "Memory",
    "Policy",
    "Published",
    "Seen",
    "Start",
    "Stop",
    "Trouble",
    "reconcile",
    "replace_memory",
]

LADDER: Final = ("Accepted", "Preflighted", "CacheReady", "Scheduled", "Started", "Loaded", "Generates", "Routable")
_SERVED_LONG: Final = 600.0
_SILENT: Final = 10.0  # a request may be in its prefill that long before anybody asks


def reconcile(seen: Seen, *, retired: bool, memory: Memory, policy: Policy, now: float) -> Decision:
    """Decide about one replica; ``retired`` means that it must drain and go."""
    if retired:
        return _retire(seen, memory, policy, now)
    ended = _ended(seen, memory)
    if ended is not None:
        return _fail(seen, memory, policy, ended, now)
    if not memory.started_at:
        return _begin(seen, memory, policy, now)
    return _climb(seen, memory, policy, now)


def _ended(seen: Seen, memory: Memory) -> Trouble | None:
    """Tell why the current attempt is over, or None while it lives (or none was begun)."""
    if not memory.started_at:
        return None
    if seen.running is None:
        return Trouble(reason="EngineVanished", message="the host knows nothing of this attempt any more")
    if seen.running.phase in (Phase.EXITED, Phase.LOST):
        if memory.trouble is not None and memory.trouble.attempt == memory.attempt:
            return memory.trouble  # we ended it: its exit by our signal explains nothing
        return seen.explained or Trouble(reason="EngineExited", message="the engine ended; its log does not say why")
    return None


def _fail(seen: Seen, memory: Memory, policy: Policy, trouble: Trouble, now: float) -> Decision:
    served = now - memory.routable_at if memory.routable_at else 0.0
    failures = 1 if served > _SERVED_LONG else memory.failures + 1
    wait = min(policy.longest_retry, policy.first_retry * 2.0 ** min(failures - 1, 20))
    after = Memory(
        attempt=memory.attempt, failures=failures, crashes=memory.crashes + 1, retry_at=now + wait, trouble=trouble
    )
    forget = (Forget(name=seen.running.run.name),) if seen.running is not None else ()
    return Decision(actions=forget, conditions=_below(seen, _down(after, now)), memory=after, look_again=wait)


def _begin(seen: Seen, memory: Memory, policy: Policy, now: float) -> Decision:
    """No attempt runs: take over one that does after all, or start one when every rung below *Started* holds."""
    found = next((r for r in seen.leftovers if r.phase is Phase.RUNNING and r.run.spec_hash == seen.spec_hash), None)
    if found is not None and found.run.attempt >= memory.attempt:
        # The state is older than the world (a restored backup, a status that was never written): adopt, do not restart.
        taken = replace_memory(memory, attempt=found.run.attempt, started_at=found.run.started_at or now)
        return Decision(conditions=_below(seen, unknown("Started", "Adopting")), memory=taken, look_again=0.05)
    clean: tuple[Action, ...] = tuple(
        Forget(name=r.run.name) for r in seen.leftovers if r.phase in (Phase.EXITED, Phase.LOST)
    )
    clean += tuple(Stop(name=r.run.name, grace=0.0) for r in seen.leftovers if r.phase is Phase.RUNNING)
    if seen.files is None or (not seen.files.ok and seen.files.reason == "Absent"):
        return Decision(actions=(*clean, Fetch()), conditions=_below(seen, None), memory=memory, look_again=0.5)
    ready = seen.accepted.status == "True" and seen.files.ok and bool(seen.preflight and seen.preflight.ok)
    if not ready or seen.devices is None:
        return Decision(actions=clean, conditions=_below(seen, None), memory=memory, look_again=1.0)
    if now < memory.retry_at <= now + policy.longest_retry:  # further away: the clock was set back, do not wait for it
        return Decision(
            actions=clean, conditions=_below(seen, _down(memory, now)), memory=memory, look_again=memory.retry_at - now
        )
    after = replace_memory(memory, attempt=memory.attempt + 1, started_at=now)
    start = Start(attempt=after.attempt, devices=seen.devices)
    told = no("Started", "Starting", f"attempt {after.attempt} is being started")
    return Decision(actions=(*clean, start), conditions=_below(seen, told), memory=after, look_again=0.2)


def _climb(seen: Seen, memory: Memory, policy: Policy, now: float) -> Decision:
    """An attempt lives: ask the next question, and remember the answers."""
    name = seen.running.run.name if seen.running else ""
    late = _too_late(seen, memory, policy, now)
    if late is not None:
        told = _below(seen, no("Started", late.reason, late.message, action=late.action))
        return Decision(
            actions=(Stop(name=name, grace=policy.grace),),
            conditions=told,
            memory=replace_memory(memory, trouble=msgspec.structs.replace(late, attempt=memory.attempt)),
            look_again=1.0,
        )
    if seen.running is not None and seen.running.phase is Phase.STOPPING:
        return Decision(conditions=_below(seen, _down(memory, now)), memory=memory, look_again=0.5)
    after = _learn(seen, memory, now)
    question, wait = _question(seen, after, policy, now)
    questions = (question, "progress" if _suspicious(seen, after, policy, now) else "")
    return Decision(
        actions=tuple(Ask(question=q) for q in questions if q),
        conditions=_rungs(seen, after, now),
        memory=after,
        route=State.SERVE if after.routable_at else State.PROBE if after.generates_at else None,
        look_again=wait,
    )


def _learn(seen: Seen, memory: Memory, now: float) -> Memory:
    after = memory
    if not after.loaded_at and seen.loaded is not None and seen.loaded.ok:
        after = replace_memory(after, loaded_at=now)
    if after.loaded_at and not after.generates_at and seen.generates is not None and seen.generates.ok:
        after = replace_memory(after, generates_at=now)
    if after.generates_at and not after.routable_at and seen.routable is not None and seen.routable.ok:
        after = replace_memory(after, routable_at=now, trouble=None)
    return after


def _question(seen: Seen, memory: Memory, policy: Policy, now: float) -> tuple[str, float]:
    """Which question is next, and when to look again."""
    if not memory.loaded_at:
        return ("loaded", 0.25) if _due(seen.loaded, 0.2, now) else ("", 0.2)
    if not memory.generates_at:
        return ("generates", 0.5) if _due(seen.generates, 2.0, now) else ("", 0.25)
    if not memory.routable_at:
        reachable = seen.published is not None and seen.published.acknowledged
        return ("routable", 0.5) if reachable and _due(seen.routable, 1.0, now) else ("", 0.2)
    return ("health", policy.health_every) if _due(seen.health, policy.health_every, now) else ("", policy.health_every)


def _quiet(seen: Seen, memory: Memory, now: float) -> float:
    """For how long no token is known to have come."""
    proven = seen.progress.at if seen.progress is not None and seen.progress.ok else 0.0
    return now - max(memory.routable_at, seen.last_token_at, proven)


def _suspicious(seen: Seen, memory: Memory, policy: Policy, now: float) -> bool:
    """Tell whether a proof of progress is due: requests run without a token, or the last proof failed."""
    failing = seen.progress is not None and not seen.progress.ok
    silent = _quiet(seen, memory, now) > min(_SILENT, policy.stalled)
    return bool(memory.routable_at) and silent and (failing or bool(seen.in_flight)) and _due(seen.progress, 1.0, now)


def _due(check: Check | None, every: float, now: float) -> bool:
    # A clock that was set back must not silence the checks until it has caught up.
    return check is None or abs(now - check.at) >= every


def _too_late(seen: Seen, memory: Memory, policy: Policy, now: float) -> Trouble | None:
    """Tell why a living attempt must be ended: it never came up, or it makes no progress any more."""
    if not memory.loaded_at and now - memory.started_at > policy.startup:
        why = seen.loaded.message if seen.loaded else "it never answered"
        return Trouble(
            reason="StartupDeadlineExceeded",
            message=f"not loaded after {policy.startup:.0f} s: {why}",
            action="read `stoker logs`, or raise spec.probes.startup for a large model",
        )
    if memory.loaded_at and not memory.generates_at and now - memory.loaded_at > policy.generate:
        why = seen.generates.message if seen.generates else "no completion came back"
        return Trouble(
            reason="GeneratesNothing",
            message=f"loaded, but no completion within {policy.generate:.0f} s: {why}",
            action="read `stoker logs`; the model or its chat template may be broken",
        )
    failing = seen.progress is not None and not seen.progress.ok
    if memory.routable_at and failing and _quiet(seen, memory, now) > policy.stalled:
        return Trouble(
            reason="NoForwardProgress",
            message=f"requests run, and no token came for {policy.stalled:.0f} s, nor an answer to a small question",
            action="read `stoker logs --previous`; it is being restarted",
        )
    sick = seen.health is not None and not seen.health.ok and now - seen.health.failing_since > policy.unhealthy_after
    if memory.routable_at and sick and now - seen.last_token_at > policy.unhealthy_after:
        return Trouble(
            reason="NoForwardProgress",
            message=f"no answer and no token for {policy.unhealthy_after:.0f} s",
            action="read `stoker logs --previous`; it is being restarted",
        )
    return None


def _retire(seen: Seen, memory: Memory, policy: Policy, now: float) -> Decision:
    """Drain, stop, forget, in this order; each is a state read in a later pass."""
    every = (*((seen.running,) if seen.running else ()), *seen.leftovers)
    living = [r for r in every if r.phase not in (Phase.EXITED, Phase.LOST)]
    forget = tuple(Forget(name=r.run.name) for r in every if r not in living)
    if not living:
        return Decision(actions=forget, conditions=(no("Ready", "Stopped"),), memory=memory, gone=True)
    after = replace_memory(memory, drain_at=memory.drain_at or now)
    waited = now - after.drain_at
    if memory.routable_at and not _drained(seen) and waited < policy.drain:
        busy = "an unknown number of" if seen.in_flight is None else str(seen.in_flight)
        told = no("Ready", "Draining", f"{busy} requests in flight; stops in at most {policy.drain - waited:.0f} s")
        return Decision(actions=forget, conditions=(told,), memory=after, route=State.DRAIN, look_again=0.2)
    stop = tuple(Stop(name=r.run.name, grace=policy.grace) for r in living if r.phase is not Phase.STOPPING)
    told = no("Ready", "Stopping", "drained; the engine is being stopped")
    route = State.DRAIN if memory.routable_at else None
    return Decision(actions=(*forget, *stop), conditions=(told,), memory=after, route=route, look_again=0.2)


def _drained(seen: Seen) -> bool:
    if seen.gateway_gone or seen.published is None:
        return True
    return seen.published.state is State.DRAIN and seen.published.acknowledged and seen.in_flight == 0


def _down(memory: Memory, now: float) -> Condition:
    trouble = memory.trouble or Trouble(reason="Waiting")
    wait = max(0.0, memory.retry_at - now)
    again = f"; attempt {memory.attempt + 1} starts in {wait:.0f} s" if memory.failures else ""
    return no("Started", trouble.reason, trouble.message + again, action=trouble.action)


def _below(seen: Seen, started: Condition | None) -> tuple[Condition, ...]:
    """Write the rungs for a replica that has no living attempt."""
    told = [seen.accepted, _checked("Preflighted", seen.preflight), _checked("CacheReady", seen.files)]
    room = seen.devices is not None
    told.append(
        yes("Scheduled", "Placed", ", ".join(seen.devices or ()))
        if room
        else no("Scheduled", "InsufficientCapacity", seen.no_room)
    )
    told.append(started or unknown("Started", "Waiting"))
    told += [unknown(kind, "NotStarted") for kind in ("Loaded", "Generates", "Routable")]
    return (*told, _ready(told))


def _rungs(seen: Seen, memory: Memory, now: float) -> tuple[Condition, ...]:
    """Write the rungs for a living attempt."""
    run = seen.running.run if seen.running else None
    what = f"attempt {memory.attempt}, pid {run.engine_pid}, port {run.port}" if run else f"attempt {memory.attempt}"
    told = [
        seen.accepted,
        yes("Preflighted", "Passed"),
        yes("CacheReady", "Staged"),
        yes("Scheduled", "Placed", ", ".join(run.devices if run else ())),
    ]
    told.append(yes("Started", "Running", what))
    told.append(_rung("Loaded", memory.loaded_at, seen.loaded, "the engine lists the model"))
    told.append(_rung("Generates", memory.generates_at, seen.generates, "a completion came back from the engine"))
    told.append(_rung("Routable", memory.routable_at, seen.routable, "a completion came back through the gateway"))
    sick = next((c for c in (seen.health, seen.progress) if c is not None and not c.ok), None)
    if sick is not None and memory.routable_at:
        return (*told, no("Ready", "Unhealthy", f"{sick.message}, for {now - sick.failing_since:.0f} s"))
    return (*told, _ready(told))


def _rung(kind: str, since: float, check: Check | None, proof: str) -> Condition:
    if since:
        return yes(kind, "Proven", proof)
    return _checked(kind, check)


def _checked(kind: str, check: Check | None) -> Condition:
    if check is None:
        return unknown(kind, "Waiting")
    if check.ok:
        return yes(kind, check.reason or "Passed", check.message)
    return no(kind, check.reason or "Failed", check.message, action=check.action)


def _ready(told: list[Condition]) -> Condition:
    missing = next((c for c in told if c.status != "True"), None)
    if missing is None:
        return yes("Ready", "AllConditionsHold")
    return no("Ready", missing.reason, f"{missing.type}: {missing.message or missing.reason}", action=missing.action)


def replace_memory(memory: Memory, **changes: object) -> Memory:
    """Copy a memory with some fields changed."""
    return msgspec.structs.replace(memory, **changes)
