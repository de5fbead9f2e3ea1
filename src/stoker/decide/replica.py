"""What should happen to one replica now, and how far up the ladder is it?

The ladder, each rung only after the one before it:
``Accepted → Preflighted → CacheReady → Scheduled → Started → Loaded → Generates → Routable``; Ready is all of them.

1. A process belongs to an attempt. A dead attempt is explained, forgotten, and followed by the next after a back-off
   that doubles; an attempt that served for ten minutes starts the count anew.
2. Health is forward progress: *Generates* is a real completion from the engine, *Routable* one through the gateway.
   An open port proves nothing.
3. Nobody may reach a replica before it is Routable (`probe`), and none is stopped before every live gateway worker has
   acknowledged `drain` and has no request left on it, or the drain limit has passed.
4. Unknown load is never zero: only a gateway that is really gone counts as empty.

Time, memory and everything seen come in; the controller that returns after a crash goes on where it was.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from stoker.decide.conditions import Condition, no, unknown, yes
from stoker.facts.observed import Phase, Running
from stoker.facts.routes import State

LADDER: Final = ("Accepted", "Preflighted", "CacheReady", "Scheduled", "Started", "Loaded", "Generates", "Routable")
_SERVED_LONG: Final = 600.0


class Trouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the last attempt ended."""

    reason: str
    message: str = ""
    action: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replica remembers between passes and over restarts of the controller; kept in its status."""

    attempt: int = 0  # number of the current or last attempt; 0: none yet
    failures: int = 0  # attempts that failed in a row
    crashes: int = 0  # attempts that failed in all
    retry_at: float = 0.0
    started_at: float = 0.0  # 0: no attempt runs
    loaded_at: float = 0.0
    generates_at: float = 0.0
    routable_at: float = 0.0
    drain_at: float = 0.0
    trouble: Trouble | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest answer to one question about one incarnation."""

    ok: bool
    at: float
    reason: str = ""
    message: str = ""
    action: str = ""
    failing_since: float = 0.0  # start of the unbroken run of failures; 0 when ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """How the gateways see this incarnation: its state in the newest routes, and whether all live workers have it."""

    state: State
    acknowledged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits in seconds."""

    startup: float = 600.0
    generate: float = 120.0
    drain: float = 60.0
    grace: float = 10.0
    health_every: float = 5.0
    unhealthy_after: float = 20.0
    first_retry: float = 1.0
    longest_retry: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that a decision about one replica depends on, as observed in one pass."""

    accepted: Condition
    files: Check | None = None  # None: nobody has looked yet
    preflight: Check | None = None
    devices: tuple[str, ...] | None = None  # None: there is no room
    no_room: str = ""
    running: Running | None = None  # the current attempt, as the host knows it
    leftovers: tuple[Running, ...] = ()  # other attempts of this replica
    spec_hash: str = ""  # what an attempt must have been started with to be taken over
    explained: Trouble | None = None  # why ``running`` exited
    loaded: Check | None = None
    generates: Check | None = None
    routable: Check | None = None
    health: Check | None = None
    published: Published | None = None
    gateway_gone: bool = False  # no worker process is alive: nothing can be in flight
    in_flight: int | None = None  # running and waiting over all live workers; None: unknown
    last_token_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Bring the model files here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start attempt ``attempt`` on ``devices``."""

    attempt: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End an attempt: ask, and after ``grace`` seconds insist."""

    name: str
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove the traces of an attempt that has ended."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Put one question (loaded, generates, routable, health) to the current attempt."""

    question: str


Action = Fetch | Start | Stop | Forget | Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, what to tell, what to remember; ``route`` is the state that the gateways should have it in."""

    actions: tuple[Action, ...] = ()
    conditions: tuple[Condition, ...] = ()
    memory: Memory = field(default_factory=Memory)
    route: State | None = None
    look_again: float | None = None
    gone: bool = False  # nothing of it is left: the resource may go


def reconcile(seen: Seen, *, retired: bool, memory: Memory, policy: Policy, now: float) -> Decision:
    """Decide about one replica; ``retired`` means that it must drain and go."""
    if retired:
        return _retire(seen, memory, policy, now)
    ended = _ended(seen, memory)
    if ended is not None:
        return _fail(seen, memory, policy, ended, now)
    if not memory.started_at:
        return _begin(seen, memory, now)
    return _climb(seen, memory, policy, now)


def _ended(seen: Seen, memory: Memory) -> Trouble | None:
    """Tell why the current attempt is over, or None while it lives (or none was begun)."""
    if not memory.started_at:
        return None
    if seen.running is None:
        return Trouble(reason="EngineVanished", message="the host knows nothing of this attempt any more")
    if seen.running.phase in (Phase.EXITED, Phase.LOST):
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


def _begin(seen: Seen, memory: Memory, now: float) -> Decision:
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
    if now < memory.retry_at:
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
            memory=replace_memory(memory, trouble=late),
            look_again=1.0,
        )
    if seen.running is not None and seen.running.phase is Phase.STOPPING:
        return Decision(conditions=_below(seen, _down(memory, now)), memory=memory, look_again=0.5)
    after = _learn(seen, memory, now)
    question, wait = _question(seen, after, policy, now)
    return Decision(
        actions=(Ask(question=question),) if question else (),
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


def _due(check: Check | None, every: float, now: float) -> bool:
    return check is None or now - check.at >= every


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
    sick = seen.health is not None and not seen.health.ok and memory.routable_at > 0
    if sick and seen.health is not None:
        return (*told, no("Ready", "Unhealthy", f"{seen.health.message}, for {now - seen.health.failing_since:.0f} s"))
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
