"""Carry out what `decide/roll` says about deployments: compose replicas, and let replicas go."""

import contextlib
import hashlib
from collections.abc import Sequence
from typing import Final, cast

import msgspec

from stoker.base import clock
from stoker.base.errors import Conflict, NotFound
from stoker.base.json import Json, JsonObject
from stoker.control.desk import Desk
from stoker.control.world import World
from stoker.decide.conditions import Condition, holds, stamp, yes
from stoker.decide.replica import Memory
from stoker.decide.roll import Decision, Replica, Wanted, roll
from stoker.drivers.store.base import Event, Owner, Resource
from stoker.spec.composed import ModelReplicaSpec
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.kinds import dump_spec, parse_spec

DRAIN: Final = "stoker.dev/drain"
_SHAPE: Final = ("model", "modelCacheRef", "runtime", "engine", "resources", "loraAdapters", "serving", "template")


async def run(desk: Desk, world: World, *, serving: set[str], offered: set[str]) -> None:
    """Make one pass over all deployments.

    ``serving`` names the replicas that every live gateway may use, ``offered`` those that the routes have.
    """
    for deployment in world.all("ModelDeployment"):
        mine = [r for r in world.all("ModelReplica") if r.owner is not None and r.owner.uid == deployment.uid]
        spec = cast("ModelDeploymentSpec", parse_spec("ModelDeployment", deployment.spec))
        wanted = _wanted(deployment, spec, world)
        since = deployment.status.get("rolloutSince")
        decision = roll(
            wanted,
            [_view(r, serving, offered) for r in mine],
            since=float(since) if isinstance(since, int | float) else 0.0,
            now=world.now,
        )
        await _carry_out(desk, deployment, mine, decision, wanted=wanted)


def template_hash(spec: JsonObject) -> str:
    """Hash what an engine depends on: a change of replicas or rollout settings replaces nothing."""
    shape = {name: spec[name] for name in _SHAPE if name in spec}
    return hashlib.sha256(msgspec.json.encode(shape, order="deterministic")).hexdigest()[:10]


def memory_of(replica: Resource) -> Memory:
    """Read what a replica remembers from its status."""
    return msgspec.convert(replica.status.get("memory") or {}, Memory)


def _wanted(deployment: Resource, spec: ModelDeploymentSpec, world: World) -> Wanted:
    plan = spec.rollout
    recreate = plan.strategy == "Recreate" if plan.strategy else _exclusive(spec, world)
    return Wanted(
        replicas=spec.replicas,
        hash=template_hash(deployment.spec),
        recreate=recreate,
        surge=1 if plan.max_surge is None else plan.max_surge,
        unavailable=plan.max_unavailable or 0,
        deadline=plan.progress_deadline or 900.0,
        deleted=deployment.deleted_at is not None,
    )


def _exclusive(spec: ModelDeploymentSpec, world: World) -> bool:
    """Tell whether old and new cannot run side by side: they need accelerators, and not enough are free."""
    needs = sum(d.count for d in spec.resources.devices)
    if not needs:
        return False
    free = [d for d in world.devices if d.kind != "cpu" and d.id not in world.held]
    return len(free) < needs


def _view(replica: Resource, serving: set[str], offered: set[str]) -> Replica:
    spec = cast("ModelReplicaSpec", parse_spec("ModelReplica", replica.spec))
    conditions = replica.status.get("conditions")
    listed = [c for c in conditions if isinstance(c, dict)] if isinstance(conditions, list) else []
    missing = next((c for c in listed if c.get("status") == "False" and c.get("type") != "Ready"), None)
    failing = f"{missing.get('type')}: {missing.get('message') or missing.get('reason')}" if missing else ""
    trouble = memory_of(replica).trouble
    if trouble is not None:  # while the next attempt starts, what counts is why the last one ended
        failing = f"{trouble.reason}: {trouble.message}"
    return Replica(
        name=replica.name,
        index=spec.index,
        hash=spec.template_hash,
        retired=replica.deleted_at is not None,
        serving=replica.uid in serving and holds(conditions, "Ready"),
        offered=replica.uid in offered,
        failing=failing,
        devices=spec.devices,
    )


async def _carry_out(
    desk: Desk, deployment: Resource, replicas: Sequence[Resource], decision: Decision, *, wanted: Wanted
) -> None:
    for create in decision.create:
        replica = _compose(deployment, create.index, wanted.hash)
        await desk.store.apply([replica], actor="controller")
        await _tell(desk, deployment, "ReplicaCreated", replica.name)
        desk.wake()
    for retire in decision.retire:
        await desk.store.delete("ModelReplica", deployment.namespace, retire.name, actor="controller")
        await _tell(desk, deployment, "ReplicaRetired", f"{retire.name} drains and goes")
        desk.wake()
    if decision.gone:
        await desk.store.remove_finalizer(
            "ModelDeployment", deployment.namespace, deployment.name, "stoker.dev/replicas"
        )
        return
    await _pass_on(desk, deployment, replicas)
    told = [yes("Accepted", "SpecValid"), *_deferred(deployment), *decision.conditions]
    status: JsonObject = {
        "conditions": stamp(
            deployment.status.get("conditions"), told, generation=deployment.generation, at=clock.rfc3339(clock.now())
        ),
        "replicas": {"total": wanted.replicas},
        "templateHash": wanted.hash,
        "rolloutSince": decision.since,
    }
    await write_status(desk, deployment, status)


def _deferred(deployment: Resource) -> list[Condition]:
    """Name the fields that were accepted and that nothing acts on yet."""
    later = deployment.annotations.get("stoker.dev/deferred", "")
    return [yes("FieldsDeferred", "NothingActsOnThemYet", later)] if later else []


async def _pass_on(desk: Desk, deployment: Resource, replicas: Sequence[Resource]) -> None:
    """Give changed annotations to the replicas: a licence accepted later must reach the one that waits for it."""
    behind = [r for r in replicas if r.annotations != deployment.annotations and r.deleted_at is None]
    for replica in behind:
        with contextlib.suppress(Conflict, NotFound):  # it changed in between: the next pass sees it again
            await desk.store.apply(
                [msgspec.structs.replace(replica, annotations=dict(deployment.annotations))], actor="controller"
            )
    if behind:
        desk.wake()


async def write_status(desk: Desk, resource: Resource, status: JsonObject) -> bool:
    """Write a status when it changed; False when somebody changed the resource in between ."""
    if status == resource.status:
        return True
    try:
        await desk.store.update_status(resource, status)
    except Conflict:
        desk.wake()
        return False
    return True


def _compose(deployment: Resource, index: int, template: str) -> Resource:
    name = f"{deployment.name}-{template}-{index}"
    if len(name) > 63:
        digest = hashlib.sha256(deployment.name.encode()).hexdigest()[:8]
        name = f"{deployment.name[:40].rstrip('-')}-{digest}-{template[:8]}-{index}"
    spec = cast("ModelDeploymentSpec", parse_spec("ModelDeployment", deployment.spec))
    body = ModelReplicaSpec(deployment=deployment.name, index=index, template_hash=template, template=spec)
    labels: dict[str, str] = dict(spec.template.metadata.labels) if spec.template is not None else {}
    for group in ("stoker.dev", "modelplane.ai"):
        labels |= {
            f"{group}/deployment": deployment.name,
            f"{group}/replica-index": str(index),
            f"{group}/cluster": "local",
        }
    return Resource(
        kind="ModelReplica",
        name=name,
        namespace=deployment.namespace,
        owner=Owner(kind="ModelDeployment", name=deployment.name, uid=deployment.uid),
        finalizers=(DRAIN,),
        labels=labels,
        annotations=dict(deployment.annotations),
        spec=dump_spec(body),
    )


async def _tell(desk: Desk, deployment: Resource, reason: str, message: str) -> None:
    await desk.tell(
        Event(
            at=clock.now(),
            kind="ModelDeployment",
            namespace=deployment.namespace,
            name=deployment.name,
            reason=reason,
            message=message,
            actor="controller",
        )
    )


def json_list(value: Json) -> list[JsonObject]:
    """Read a list of objects; anything else is an empty one."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
