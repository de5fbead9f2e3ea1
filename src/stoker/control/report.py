"""Answers for people: resources in manifest shape, the status of everything, logs, usage, registered engines."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple, cast

import msgspec

from stoker import __version__
from stoker.base import clock
from stoker.base.errors import Fault, Invalid, NotFound, nearest
from stoker.base.json import Json, JsonObject
from stoker.base.units import show_bytes
from stoker.control.deployments import json_list, memory_of
from stoker.control.desk import Desk
from stoker.control.gateways import observe_gateways, public_address
from stoker.decide.acknowledge import STALE_AFTER, Gateways
from stoker.drivers import devices, files, models, spawn
from stoker.drivers.ledger.sqlite import GROUPS
from stoker.drivers.store.base import Event, Resource
from stoker.engines.registry import ENGINES
from stoker.facts.record import Record
from stoker.spec.kinds import Kind
from stoker.spec.meta import API_VERSION

_FOLLOW_EVERY: Final = 0.25


class Named(NamedTuple):
    """One resource by name."""

    kind: Kind
    namespace: str
    name: str


def manifest(resource: Resource) -> JsonObject:
    """Write a resource as a manifest with its status; what `get -o yaml` prints can be applied again."""
    metadata: JsonObject = {
        "name": resource.name,
        **({"namespace": resource.namespace} if resource.namespace else {}),
        **({"labels": cast("Json", resource.labels)} if resource.labels else {}),
        **({"annotations": cast("Json", resource.annotations)} if resource.annotations else {}),
        "uid": resource.uid,
        "resourceVersion": resource.resource_version,
        "generation": resource.generation,
        "createdAt": resource.created_at,
        **({"deletedAt": resource.deleted_at} if resource.deleted_at else {}),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": resource.spec,
        "status": resource.status,
    }


def labels(selector: str) -> dict[str, str] | None:
    """Read ``a=b,c=d``; raises Invalid for anything else."""
    if not selector:
        return None
    pairs = [part.partition("=") for part in selector.split(",")]
    bad = next((left for left, sign, _ in pairs if not sign or not left), None)
    if bad is not None:
        raise Invalid(
            Fault(
                message=f"'{selector}' is no selector", field="--selector", hint="write name=value, with commas between"
            )
        )
    return {left: right for left, _, right in pairs}


async def status(desk: Desk) -> JsonObject:
    """Everything that runs, in one object."""
    gateways = observe_gateways(desk.layout)
    now = clock.now()
    background, public = spawn.find(desk.layout), public_address(desk.layout)
    machine = devices.survey(desk.layout.root)
    gpus = [d for d in machine.devices if d.kind == "gpu"]
    workers: list[Json] = [
        {
            "worker": w.worker,
            "pid": w.pid,
            "fresh": now - w.at <= STALE_AFTER,
            "routesGeneration": w.routes_generation,
            "inFlight": sum(e.running + e.waiting for e in w.endpoints),
            "accounting": w.accounting,
        }
        for w in gateways.workers
    ]
    return {
        "version": __version__,
        "stateDir": str(desk.layout.root),
        "endpoint": f"{public.origin}/v1" if public.origin else "",
        "certificate": public.cert_file,
        "supervisor": background.pid if background and background.alive else None,
        "gateways": workers,
        "machine": {
            "cores": machine.cores,
            "memory": show_bytes(machine.memory_bytes),
            "accelerators": ", ".join(d.name for d in gpus) or "no accelerator",
        },
        "services": [_service(r) for r in await desk.store.list("ModelService")],
        "replicas": [_replica(r) for r in await desk.store.list("ModelReplica")],
        "warnings": [*_worries(gateways, now), *await _warnings(desk, gpus=bool(gpus))],
    }


def _service(resource: Resource) -> JsonObject:
    routing = _condition(resource, "RoutingReady")
    routes = resource.status.get("routes")
    counts = routes if isinstance(routes, dict) else {}
    names = resource.status.get("models")
    short = [str(n) for n in names] if isinstance(names, list) else []
    return {
        "name": f"{resource.namespace}/{resource.name}",
        "model": resource.name if resource.name in short else f"{resource.namespace}/{resource.name}",
        "routable": bool(counts.get("ready")) and routing.get("status") == "True",
        "endpoints": f"{counts.get('ready', 0)}/{counts.get('total', 0)}",
        "reason": str(routing.get("message") or routing.get("reason") or ""),
    }


def _replica(resource: Resource) -> JsonObject:
    ready = _condition(resource, "Ready")
    template = resource.spec.get("template")
    block = template.get("engine") if isinstance(template, dict) else None
    return {
        "name": f"{resource.namespace}/{resource.name}",
        "engine": str(block.get("name")) if isinstance(block, dict) else "command",
        "ready": str(ready.get("status", "Unknown")),
        "reason": str(ready.get("reason", "")),
        "message": str(ready.get("message", "")),
        "action": str(ready.get("nextAction", "")),
        "restarts": memory_of(resource).crashes,
    }


def _condition(resource: Resource, kind: str) -> JsonObject:
    return next((c for c in json_list(resource.status.get("conditions")) if c.get("type") == kind), {})


def _worries(gateways: Gateways, now: float) -> list[Json]:
    """Tell what the gateways say is wrong now; on a full disk no condition can be counted on to be written."""
    told: list[Json] = []
    if any(now - w.at > STALE_AFTER for w in gateways.workers):
        told.append("a gateway worker has not written its state for more than three seconds; its load is unknown")
    states = {w.accounting for w in gateways.workers} - {"ok"}
    if states:
        what = {
            "refusing": "requests are refused: their usage cannot be recorded",
            "unmetered": "requests are served whose usage cannot be recorded",
        }.get(min(states & {"refusing", "unmetered"}, default=""), "usage is being recorded in the last reserve")
        told.append(f"THE DISK IS FULL: {what}; free space, nothing needs a restart")
    told += [
        f"older routes are in force: {error}" for error in sorted({w.routes_error for w in gateways.workers} - {""})
    ]
    told += sorted({w.limits_problem for w in gateways.workers} - {""})
    return told


async def _warnings(desk: Desk, *, gpus: bool) -> list[Json]:
    told: list[Json] = []
    deployments = await desk.store.list("ModelDeployment")
    for resource in deployments:
        model = resource.spec.get("model")
        name = model.get("name") if isinstance(model, dict) else None
        if name == models.DEMO:
            told.append(
                f"{resource.name} serves {name}, a demo model with weak answers; better: `stoker up --model HF_REPO`"
            )
        engine = resource.spec.get("engine")
        if gpus and isinstance(engine, dict) and engine.get("name") == "llama.cpp":
            told.append(
                f"{resource.name} RUNS ON THE CPU, and this machine has a GPU: `stoker engine add vllm --python PATH`"
            )
    damage = await asyncio.to_thread(desk.ledger.damage)
    told += [f"usage records could not be read; their segment is set aside in the spool: {one}" for one in damage]
    return told


async def log_lines(
    desk: Desk, namespace: str, name: str, *, previous: bool, tail: int, follow: bool
) -> AsyncIterator[bytes]:
    """Find the log of a replica's attempt and read it. Raises NotFound naming what there is."""
    replica = await _find_replica(desk, namespace, name)
    attempt = memory_of(replica).attempt - (1 if previous else 0)
    if attempt < 1:
        raise NotFound(f"{replica.name} {'is at its first attempt' if previous else 'has not started yet'}")
    path = desk.layout.logs / f"{replica.uid}-{attempt}.log"
    if not path.exists():
        kept = sorted(p.name for p in desk.layout.logs.glob(f"{replica.uid}-*.log"))
        raise NotFound(
            f"attempt {attempt} of {replica.name} has no log; {len(kept)} others are kept in {desk.layout.logs}"
        )
    return _read_log(path, tail=tail, follow=follow)


async def _find_replica(desk: Desk, namespace: str, name: str) -> Resource:
    replicas = await desk.store.list("ModelReplica", namespace=namespace)
    found = [r for r in replicas if r.name == name] or [
        r for r in replicas if r.owner is not None and r.owner.name == name
    ]
    if len(found) == 1:
        return found[0]
    names = [r.name for r in found or replicas]
    if found:
        raise Invalid(f"{name} has {len(found)} replicas, say which: {', '.join(names)}")
    near = nearest(name, names) or ", ".join(names) or "there is none at all"
    raise NotFound(f"there is no replica or deployment '{name}' in namespace {namespace}; {near}")


async def _read_log(path: Path, *, tail: int, follow: bool) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        lines = file.readlines()
        for line in lines[-tail:] if tail else lines:
            yield line
        while follow:
            line = file.readline()
            if line:
                yield line
            else:
                await asyncio.sleep(_FOLLOW_EVERY)


async def usage(desk: Desk, *, by: tuple[str, ...], since: float, records: bool, limit: int) -> JsonObject:
    """Sum what was used, or list the requests. What lies in the spool is taken in first."""
    await asyncio.to_thread(desk.ledger.ingest, desk.layout.spool)
    if records:
        found = await asyncio.to_thread(desk.ledger.records, since=since, limit=limit)
        return {"items": [record_row(r) for r in found]}
    wrong = next((word for word in by if word not in GROUPS), None)
    if wrong is not None:
        raise Invalid(
            Fault(message=f"usage has no '{wrong}'", field="--by", hint=nearest(wrong, GROUPS) or ", ".join(GROUPS))
        )
    rows = await asyncio.to_thread(desk.ledger.usage, by, since=since)
    return {"items": cast("Json", rows)}


def record_row(record: Record) -> JsonObject:
    """Write one record flat, every field with its unit in its name."""
    spent, took, gaps = record.tokens, record.times, record.gaps
    return {
        "at": clock.rfc3339(record.at),
        "at_seconds": record.at,
        "request_id": record.request_id,
        "caller": record.caller,
        "key_id": record.key_id,
        "service": record.service,
        "model": record.model,
        "endpoint": record.endpoint,
        "dialect": record.dialect,
        "path": record.path,
        "stream": record.stream,
        "status": record.status,
        "outcome": record.outcome.value,
        "detail": record.detail,
        "flags": [flag.value for flag in record.flags],
        "attempts": record.attempts,
        "prompt_tokens": spent.prompt,
        "cached_tokens": spent.cached,
        "reasoning_tokens": spent.reasoning,
        "visible_tokens": spent.visible,
        "tool_tokens": spent.tool,
        "output_tokens": spent.output,
        "estimated": spent.estimated,
        "queue_seconds": took.queue,
        "first_byte_seconds": took.first_byte,
        "first_token_seconds": took.first_token,
        "first_visible_token_seconds": took.first_visible,
        "last_token_seconds": took.last,
        "total_seconds": took.total,
        "gap_mean_seconds": gaps.mean,
        "gap_longest_seconds": gaps.longest,
        "session": record.session,
        "turn": record.turn,
        "blocks": list(record.blocks),
        "prompt_bytes": record.prompt_bytes,
        "tools_bytes": record.tools_bytes,
        "system_bytes": record.system_bytes,
        "splices": list(record.splices),
        "price_usd": record.price_usd,
    }


async def engines(desk: Desk) -> list[Json]:
    """List the engines that a user has registered."""
    data = files.read(desk.layout.root / "engines.json")
    found = msgspec.json.decode(data) if data else []
    return cast("list[Json]", found)


async def add_engine(desk: Desk, *, name: str, kind: str, path: str, actor: str) -> JsonObject:
    """Ask a program for its version, keep that and a digest. Raises Invalid for an unknown name, Driver if it fails."""
    if name not in ENGINES:
        raise Invalid(
            Fault(
                message=f"there is no engine '{name}'",
                field="name",
                hint=nearest(name, list(ENGINES)) or ", ".join(ENGINES),
            )
        )
    program = Path(path)
    if not await asyncio.to_thread(program.is_file):
        raise Invalid(Fault(message=f"{path} is no file", field="path"))
    argv = (
        [str(program), "-c", _VERSION_OF.format(name=_DISTRIBUTIONS.get(name, name))]
        if kind == "python"
        else [str(program), "--version"]
    )
    version = (await asyncio.to_thread(spawn.program_output, argv)).splitlines()[-1:]
    made: JsonObject = {
        "name": name,
        "kind": kind,
        "path": str(program),
        "version": version[0] if version else "unknown",
        "digest": await asyncio.to_thread(_digest, program),
    }
    kept = [
        e
        for e in await engines(desk)
        if not (isinstance(e, dict) and e.get("path") == str(program) and e.get("name") == name)
    ]
    files.replace(desk.layout.root / "engines.json", msgspec.json.encode([*kept, made]))
    event = Event(
        at=clock.now(),
        kind="Engine",
        name=name,
        reason="EngineAdded",
        message=f"{made['version']} at {path}",
        actor=actor,
    )
    await desk.tell(event)
    return made


_DISTRIBUTIONS: Final = {"llama.cpp": "xllamacpp", "tensorrt-llm": "tensorrt_llm"}
_VERSION_OF: Final = "import importlib.metadata as m; print(m.version({name!r}))"


def _digest(program: Path) -> str:
    with program.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
