"""Tell the owners of services, gateways, use cases, clusters and the like how their resources stand."""

from collections.abc import Sequence
from typing import cast

from stoker.base import clock
from stoker.base.json import Json, JsonObject
from stoker.control.deployments import json_list, write_status
from stoker.control.desk import Desk
from stoker.control.published import quotas
from stoker.control.routing import Board, service_spec, use_case
from stoker.control.world import World
from stoker.decide.conditions import Condition, no, stamp, unknown, yes
from stoker.decide.publish import selects
from stoker.drivers.store.base import Owner, Resource
from stoker.facts.routes import Service, State
from stoker.spec.composed import ModelRouteSpec, RouteTarget
from stoker.spec.gateway import InferenceGatewaySpec
from stoker.spec.hardware import InferenceClusterSpec
from stoker.spec.kinds import dump_spec, parse_spec


async def run(desk: Desk, world: World, board: Board) -> None:
    """Make one pass over everything that is only reported on."""
    for service in world.all("ModelService"):
        await _service(desk, world, board, service)
    for gateway in world.all("InferenceGateway"):
        await _gateway(desk, world, gateway)
    for kind in ("InferenceClass", "UseCase", "Caller", "ModelEndpoint"):
        for resource in world.all(kind):
            await _write(desk, resource, [yes("Accepted", "SpecValid"), *_later(resource)])
    for cluster in world.all("InferenceCluster"):
        await _cluster(desk, world, cluster)


async def _service(desk: Desk, world: World, board: Board, resource: Resource) -> None:
    key = f"{resource.namespace}/{resource.name}"
    published = next((s for s in board.routes.services if s.name == key), None)
    names = {name for target in published.targets for name in target.endpoints} if published else set()
    states = {e.name: e.state for e in board.routes.endpoints if e.name in names}
    ready = sum(state is State.SERVE for state in states.values())
    told = [
        yes("Accepted", "SpecValid"),
        *_later(resource),
        _resolved(resource, names, hidden=board.hidden.get(key, "")),
        _bars(world, resource),
        _routing(world, resource, published=published, ready=ready, hidden=board.hidden.get(key, "")),
    ]
    status: JsonObject = {
        "model": key,
        "models": list(published.models) if published else [],
        "routes": {"total": len(names), "ready": ready},
    }
    await _write(desk, resource, told, status)
    if published is not None:
        await _compose_routes(desk, world, resource, published, states)


def _resolved(resource: Resource, names: set[str], *, hidden: str) -> Condition:
    if names:
        return yes("EndpointsResolved", "Found", f"{len(names)} endpoints")
    if hidden:  # nobody looked for endpoints: that none was found would be a false trail
        return unknown("EndpointsResolved", "NotExposed", hidden)
    wanted = "; ".join(
        ",".join(f"{k}={v}" for k, v in e.selector.match_labels.items()) for e in service_spec(resource).endpoints
    )
    return no(
        "EndpointsResolved", "NoneMatch", f"no endpoint carries {wanted}", action="compare with `stoker get mr -o wide`"
    )


def _bars(world: World, resource: Resource) -> Condition:
    case = use_case(world, resource)
    if case is None or case.bar is None:
        return no(
            "BarsWritten",
            "NoUseCase",
            "nothing says yet what good means for this service",
            action="write a UseCase (presets: coding-agent, chat, batch) and set spec.useCaseRef",
        )
    bar = case.bar
    return yes(
        "BarsWritten",
        "Written",
        f"visible TTFT p90 {bar.visible_ttft_p90_seconds} s, {bar.tokens_per_second_per_user} tokens/s per user, "
        f"error rate {bar.error_rate}",
    )


def _routing(world: World, resource: Resource, *, published: Service | None, ready: int, hidden: str) -> Condition:
    if published is None:
        if not world.all("InferenceGateway"):
            told = "there is no InferenceGateway"
            return no("RoutingReady", "NoGateway", told, action="apply one; `stoker up` makes one too")
        return no("RoutingReady", "NotExposed", hidden, action="label it as an InferenceGateway's serviceSelector asks")
    case = use_case(world, resource)
    if case is not None and case.tools:
        doubtful = _unverified(world, resource)
        if doubtful is not None:
            return no(
                "RoutingReady",
                "ParsersUnverified",
                str(doubtful.get("message")),
                action=str(doubtful.get("nextAction", "")),
            )
    if ready == 0:
        return no(
            "RoutingReady",
            "NoReadyEndpoint",
            "no endpoint serves now",
            action="`stoker status` tells what the replicas wait for",
        )
    return yes("RoutingReady", "Serving", f"{ready} endpoints serve")


def _unverified(world: World, resource: Resource) -> JsonObject | None:
    """Find a replica of this service whose tool or reasoning markup is not parsed."""
    for selector in service_spec(resource).endpoints:
        for replica in world.all("ModelReplica"):
            if replica.namespace != resource.namespace or not selects(selector.selector.match_labels, replica.labels):
                continue
            for condition in json_list(replica.status.get("conditions")):
                if condition.get("type") == "ParsersVerified" and condition.get("status") == "False":
                    return condition
    return None


async def _compose_routes(
    desk: Desk, world: World, service: Resource, published: Service, states: dict[str, State]
) -> None:
    """Write one ModelRoute per gateway that exposes the service."""
    for gateway in world.all("InferenceGateway"):
        spec = cast("InferenceGatewaySpec", parse_spec("InferenceGateway", gateway.spec))
        if not spec.service_selector.match_labels or not selects(spec.service_selector.match_labels, service.labels):
            continue
        targets = tuple(
            RouteTarget(name=name.replace("/", "."), state=states[name].value, priority=t.priority, weight=t.weight)
            for t in published.targets
            for name in t.endpoints
            if name in states
        )
        route = ModelRouteSpec(gateway_name=gateway.name, service_name=service.name, endpoints=targets)
        name = f"{service.name}-{gateway.name}"[:63].rstrip("-")
        old = next((r for r in world.all("ModelRoute") if r.namespace == service.namespace and r.name == name), None)
        body = dump_spec(route)
        if old is None or old.spec != body:
            owner = Owner(kind="ModelService", name=service.name, uid=service.uid)
            made = Resource(kind="ModelRoute", name=name, namespace=service.namespace, owner=owner, spec=body)
            await desk.store.apply([made], actor="controller")
            continue
        ready = sum(state is State.SERVE for state in states.values())
        told = [yes("Ready", "Serving") if ready else no("Ready", "NoReadyEndpoint")]
        more: JsonObject = {"model": published.name, "endpoints": {"total": len(states), "ready": ready}}
        await _write(desk, old, told, more)


async def _gateway(desk: Desk, world: World, resource: Resource) -> None:
    workers = world.gateways.workers
    errors = sorted({w.routes_error for w in workers if w.routes_error})
    if world.gateways.gone:
        told = no(
            "Ready", "NoWorker", "no gateway worker is alive", action="see logs/gateway-0.log in the state directory"
        )
    elif errors:
        told = no("Ready", "RoutesRefused", "; ".join(errors), action="the last good routes are in force")
    else:
        told = yes(
            "Ready", "Serving", f"{len(workers)} workers, routes generation {min(w.routes_generation for w in workers)}"
        )
    accounting = sorted({w.accounting for w in workers} - {"ok"})
    kept = (
        no(
            "Accounting",
            "DiskFull",
            f"workers report {', '.join(accounting)}",
            action="free space on the state directory's disk",
        )
        if accounting
        else yes("Accounting", "Recording")
    )
    spec = cast("InferenceGatewaySpec", parse_spec("InferenceGateway", resource.spec))
    exposes = (
        yes("Exposes", "SelectorSet", ",".join(f"{k}={v}" for k, v in spec.service_selector.match_labels.items()))
        if spec.service_selector.match_labels
        else no(
            "Exposes",
            "SelectorEmpty",
            "an empty serviceSelector exposes nothing",
            action="set spec.serviceSelector.matchLabels",
        )
    )
    await _write(
        desk, resource, [yes("Accepted", "SpecValid"), *_later(resource), told, kept, quotas.kept(workers), exposes]
    )


async def _cluster(desk: Desk, world: World, resource: Resource) -> None:
    spec = cast("InferenceClusterSpec", parse_spec("InferenceCluster", resource.spec))
    told = [yes("Accepted", "SpecValid"), *_later(resource)]
    status: JsonObject = {}
    if spec.source != "Local":
        told.append(
            no(
                "Ready",
                "DeclaredOnly",
                f"source {spec.source} is declared; Stoker provisions no clouds",
                action="replicas run on this machine",
            )
        )
    else:
        told.append(yes("Ready", "ThisMachine"))
        status["observedPools"] = [
            {
                "id": d.id,
                "kind": d.kind,
                "name": d.name,
                "memoryBytes": d.memory_bytes,
                "heldBy": world.held.get(d.id, ""),
            }
            for d in world.devices
        ]
        told.append(_verified(world, spec))
    await _write(desk, resource, told, status)


def _verified(world: World, spec: InferenceClusterSpec) -> Condition:
    """Compare what the pools declare with what the machine has: a class is a claim, not an observation."""
    classes = {c.name: c for c in world.all("InferenceClass")}
    declared = 0
    for pool in spec.node_pools:
        found = classes.get(pool.class_name)
        if found is None:
            return unknown("DevicesVerified", "ClassMissing", f"InferenceClass {pool.class_name} does not exist")
        declared += sum(int(str(d.get("count", 1))) for d in json_list(found.spec.get("devices")))
    seen = sum(d.kind == "gpu" for d in world.devices)
    if not spec.node_pools:
        return unknown("DevicesVerified", "NothingDeclared", f"{seen} accelerators seen")
    if declared == seen:
        return yes("DevicesVerified", "Match", f"{seen} accelerators, as declared")
    return no(
        "DevicesVerified",
        "Mismatch",
        f"{declared} accelerators are declared, {seen} are here",
        action="correct the class or the pool",
    )


def _later(resource: Resource) -> Sequence[Condition]:
    later = resource.annotations.get("stoker.dev/deferred", "")
    return [yes("FieldsDeferred", "NothingActsOnThemYet", later)] if later else []


async def _write(desk: Desk, resource: Resource, told: Sequence[Condition], more: JsonObject | None = None) -> None:
    stamped: list[Json] = stamp(
        resource.status.get("conditions"), told, generation=resource.generation, at=clock.rfc3339(clock.now())
    )
    await write_status(desk, resource, {"conditions": stamped, **(more or {})})
