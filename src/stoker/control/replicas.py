"""Carry out what `decide/replica` says about replicas. What is to be done is remembered before it is done."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver, Invalid
from stoker.base.json import Json, JsonObject
from stoker.control import launching
from stoker.control.deployments import DRAIN, memory_of, write_status
from stoker.control.desk import Desk
from stoker.control.evidence import extras
from stoker.control.evidence.extras import Attempted
from stoker.control.evidence.questions import Subject
from stoker.control.gateways import public_address
from stoker.control.launching import Case
from stoker.control.routing import Board
from stoker.control.world import World
from stoker.decide import acknowledge, replica
from stoker.decide.conditions import stamp, yes
from stoker.decide.place import Need, assume, place
from stoker.decide.replica import Ask, Decision, Fetch, Forget, Memory, Policy, Seen, Start, Stop, Trouble
from stoker.drivers.store.base import Event, Resource
from stoker.engines.base import Engine
from stoker.facts.observed import Phase, Running
from stoker.facts.routes import Endpoint, State
from stoker.spec.composed import ModelReplicaSpec

_log = logging.getLogger("control.replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One replica in one pass: what it is, what was seen, what was decided."""

    case: Case
    memory: Memory
    decision: Decision
    attempt: Running | None

    @property
    def resource(self) -> Resource:
        """The replica as it was read."""
        return self.case.resource

    @property
    def engine(self) -> Engine:
        """The adapter of its engine."""
        return self.case.engine

    @property
    def spec(self) -> ModelReplicaSpec:
        """What it is to be."""
        return self.case.spec

    @property
    def key(self) -> str:
        """Its name in the routes."""
        return self.case.key


def decide(desk: Desk, world: World, board: Board) -> list[Step]:
    """Decide about all replicas; each sees the placements of the ones before it."""
    steps = []
    for resource in world.all("ModelReplica"):
        case, memory = launching.case_of(resource), memory_of(resource)
        seen = _see(desk, world, board, case=case, memory=memory)
        retired = resource.deleted_at is not None
        decision = replica.reconcile(seen, retired=retired, memory=memory, policy=_policy(case), now=world.now)
        steps.append(Step(case=case, memory=decision.memory, decision=decision, attempt=seen.running))
    return steps


async def carry_out(desk: Desk, world: World, steps: list[Step]) -> None:
    """Remember, then act: an action whose intent was never written could start an engine twice."""
    for step in steps:
        if not await write_status(desk, step.resource, _status(desk, step)):
            continue
        await _note_changes(desk, step)
        for action in step.decision.actions:
            try:
                await _act(desk, world, step, action)
            except Driver as error:
                _log.warning(
                    "action failed",
                    extra={"fields": {"replica": step.key, "action": type(action).__name__, "error": str(error)}},
                )
        if step.decision.gone:
            await desk.store.remove_finalizer("ModelReplica", step.resource.namespace, step.resource.name, DRAIN)
            desk.wake()
    await _orphans(desk, world)


def endpoint_of(step: Step, layout_keys: Path) -> Endpoint | None:
    """Write how the gateways reach this replica, or None while they must not know it."""
    state, attempt = step.decision.route, step.attempt
    if state is None or attempt is None:
        return None
    block = step.spec.template.block
    able = step.engine.capabilities
    listed = _listed(step)
    return Endpoint(
        name=step.key,
        incarnation=attempt.run.name,
        state=state,
        origin=f"http://127.0.0.1:{attempt.run.port}",
        upstream_model=launching.upstream_name(step.case, listed),
        credential_file=attempt.run.secret_file or str(layout_keys / f"{attempt.run.name}.secret"),
        engine=step.engine.name,
        dialects=able.dialects,
        slots=0 if able.bounded_queue else (block.max_sequences or 4),
        queue=64,
        context_tokens=_context(step),
        stream_upstream=not able.cancels_unstreamed,
        models=tuple(a.name for a in step.spec.template.lora_adapters),
        embeddings=bool(block.embeddings),
    )


def _context(step: Step) -> int:
    """Tell how many tokens a request may use: what the engine says is in force, else what was asked."""
    force = step.resource.status.get("inForce")
    told = force.get("contextTokens") if isinstance(force, dict) else None
    return told if isinstance(told, int) else step.engine.effective_context(step.spec.template.block, None)


def _listed(step: Step) -> list[str]:
    """Model names that the engine itself listed, as the status remembers them."""
    force = step.resource.status.get("inForce")
    names = force.get("modelNames") if isinstance(force, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _see(desk: Desk, world: World, board: Board, *, case: Case, memory: Memory) -> Seen:
    resource, key = case.resource, case.key
    attempts = world.running.get(resource.uid, ())
    current = next((r for r in attempts if r.run.attempt == memory.attempt and memory.started_at), None)
    name = f"{resource.uid}-{memory.attempt}"
    look = launching.look(desk, case)
    placement = place(_needs(case, world), world.devices, held=_others(world.held, key))
    if current is None and resource.deleted_at is None and look.preflight is not None and look.preflight.ok:
        world.held.update(assume(world.held, placement, key))
    load = acknowledge.load(world.gateways, key, name, now=world.now)
    answers = desk.questions
    return Seen(
        accepted=yes("Accepted", "SpecValid"),
        files=look.files,
        preflight=look.preflight,
        devices=placement.devices,
        no_room=placement.why,
        running=current,
        leftovers=tuple(r for r in attempts if r is not current),
        spec_hash=case.spec.template_hash,
        explained=_explained(case.engine, current),
        loaded=answers.answer(name, "loaded"),
        generates=answers.answer(name, "generates"),
        routable=answers.answer(name, "routable"),
        health=answers.answer(name, "health"),
        progress=answers.answer(name, "progress"),
        published=board.seen(key, name, world),
        gateway_gone=world.gateways.gone,
        in_flight=None if load is None else load.running + load.waiting,
        last_token_at=load.last_token_at if load else 0.0,
    )


def _needs(case: Case, world: World) -> tuple[Need, ...]:
    """Tell which accelerators a replica claims; none means the CPU."""
    spec, engine = case.spec, case.engine
    asked = spec.template.resources.devices
    template = spec.template.template
    if not asked and template is not None and template.spec is not None:
        asked = tuple(
            d for e in template.spec.engines for m in e.members if m.node_selector for d in m.node_selector.devices
        )
    if asked:
        return tuple(Need(count=d.count, expressions=tuple(s.cel for s in d.selectors)) for d in asked)
    block = spec.template.block
    ranks = (block.tensor_parallel or 1) * (block.pipeline_parallel or 1)
    wants_gpu = engine.name in ("vllm", "sglang", "tensorrt-llm") and any(d.kind == "gpu" for d in world.devices)
    return (Need(count=ranks),) if wants_gpu or ranks > 1 else ()


def _others(held: dict[str, str], key: str) -> dict[str, str]:
    return {device: holder for device, holder in held.items() if holder != key}


def _explained(engine: Engine, attempt: Running | None) -> Trouble | None:
    """Ask the adapter why an attempt ended, from its exit and the end of its log."""
    if attempt is None or attempt.phase not in (Phase.EXITED, Phase.LOST):
        return None
    ended = attempt.exit
    if ended is not None and ended.error:
        return Trouble(reason="StartFailed", message=ended.error, action="check spec.runtime")
    said = engine.explain(
        code=ended.code if ended else None,
        signal=ended.signal if ended else None,
        log_tail=launching.log_tail(attempt.run.log),
    )
    return Trouble(reason=said.reason, message=said.message, action=said.action)


def _policy(case: Case) -> Policy:
    spec, engine = case.spec, case.engine
    probes, plan = spec.template.probes, spec.template.rollout
    return Policy(
        startup=probes.startup or engine.probes.startup,
        generate=probes.generate or engine.probes.generate,
        stalled=probes.generate or engine.probes.stalled,
        drain=60.0 if plan.drain_seconds is None else plan.drain_seconds,
    )


def _status(desk: Desk, step: Step) -> JsonObject:
    of = _attempted(step)
    told = [*step.decision.conditions, *(extras.conditions(of, desk.questions) if of is not None else ())]
    status: JsonObject = {
        "conditions": stamp(
            step.resource.status.get("conditions"),
            told,
            generation=step.resource.generation,
            at=clock.rfc3339(clock.now()),
        ),
        "memory": cast("Json", msgspec.to_builtins(step.memory)),
        "restarts": step.memory.crashes,
    }
    if step.decision.route is not None:
        status["route"] = step.decision.route.value
    if of is not None:
        log = launching.log_head(of.run.log) if extras.wants_log(of) else ()
        status |= extras.fields(of, desk.questions, log=log)
    return status


def _attempted(step: Step) -> Attempted | None:
    if step.attempt is None:
        return None
    return Attempted(
        resource=step.resource,
        engine=step.engine,
        block=step.spec.template.block,
        memory=step.memory,
        run=step.attempt.run,
    )


async def _note_changes(desk: Desk, step: Step) -> None:
    """Make an event of what a person would want to find later."""
    before = memory_of(step.resource)
    after = step.memory
    if after.routable_at and not before.routable_at:
        await _event(desk, step, "Ready", f"attempt {after.attempt} is routable")
    if after.trouble is not None and after.failures > before.failures:
        await _event(
            desk, step, after.trouble.reason, f"attempt {after.attempt}: {after.trouble.message}", warning=True
        )
    if after.drain_at and not before.drain_at:
        await _event(desk, step, "Draining", "no new requests; running ones finish")


async def _event(desk: Desk, step: Step, reason: str, message: str, *, warning: bool = False) -> None:
    await desk.tell(
        Event(
            at=clock.now(),
            kind="ModelReplica",
            namespace=step.resource.namespace,
            name=step.resource.name,
            reason=reason,
            message=message,
            actor="controller",
            warning=warning,
        )
    )


async def _act(desk: Desk, world: World, step: Step, action: replica.Action) -> None:
    match action:
        case Fetch():
            launching.fetch(desk, step.case)
        case Start(attempt=attempt, devices=devices):
            await _start(desk, step, attempt=attempt, devices=devices)
        case Stop(name=name, grace=grace):
            await desk.host.stop(name, grace=grace)
        case Forget(name=name):
            await desk.host.forget(name)
            desk.questions.forget(name)
        case Ask(question=question):
            _ask(desk, world, step, question)


def _ask(desk: Desk, world: World, step: Step, question: str) -> None:
    subject = _subject(desk, world, step)
    if subject is None:
        return
    desk.questions.ask(subject, question)
    of = _attempted(step)
    judged = of is not None and extras.asked_before(of)
    if question == "health" and not judged and subject.attempt not in desk.questions.verdicts:
        desk.questions.ask(subject, "parsers")
    if question == "health" and subject.attempt not in desk.questions.in_force:
        desk.questions.ask(subject, "loaded")  # adopted: read back again what is in force


async def _start(desk: Desk, step: Step, *, attempt: int, devices: tuple[str, ...]) -> None:
    try:
        order = launching.order(desk, step.case, attempt=attempt, devices=devices)
    except Invalid as error:
        raise Driver(f"no command line: {error}") from error
    await desk.host.start(order)


def _subject(desk: Desk, world: World, step: Step) -> Subject | None:
    if step.attempt is None:
        return None
    run = step.attempt.run
    public = public_address(desk.layout)
    return Subject(
        attempt=run.name,
        engine=step.engine,
        port=run.port,
        secret=launching.secret_of(run.secret_file),
        served_name=launching.upstream_name(step.case, _listed(step)),
        strict_name=not step.spec.template.opaque,
        endpoint=step.key,
        gateway=public.origin,
        gateway_cert_file=public.cert_file,
        probe_key=launching.probe_key(desk),
        workers=world.gateways.expected,
        generate=_policy(step.case).generate,
        template=launching.chat_template(desk, step.case),
    )


async def _orphans(desk: Desk, world: World) -> None:
    """End attempts whose replica is gone from the store: nobody else ever would."""
    known = {r.uid for r in world.all("ModelReplica")}
    for uid, attempts in world.running.items():
        if uid in known:
            continue
        for attempt in attempts:
            if attempt.phase in (Phase.EXITED, Phase.LOST):
                await desk.host.forget(attempt.run.name)
            elif attempt.phase is not Phase.STOPPING:
                _log.warning("stopping an engine that no replica owns", extra={"fields": {"attempt": attempt.run.name}})
                await desk.host.stop(attempt.run.name, grace=10.0)


def serving(steps: list[Step], world: World, board: Board) -> set[str]:
    """Name the replicas (by uid) that every live gateway worker serves, or would if a service selected them."""
    return {step.resource.uid for step in steps if _serves(step, world, board)}


def offered(steps: list[Step]) -> set[str]:
    """Name the replicas (by uid) that the routes offer, whether or not every worker has said so."""
    return {step.resource.uid for step in steps if step.decision.route is State.SERVE}


def _serves(step: Step, world: World, board: Board) -> bool:
    if step.attempt is None or step.decision.route is not State.SERVE:
        return False
    seen = board.seen(step.key, step.attempt.run.name, world)
    if seen is None:  # proven through the gateways, and then left out of the routes: no service selects it
        return True
    return seen.state is State.SERVE and (seen.acknowledged or world.gateways.gone)
