"""From a replica's spec to an order for the host: which files, which program, which command line."""

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.control.apply import LICENCES
from stoker.control.desk import Desk
from stoker.control.stock import Look, Want
from stoker.decide.preflight import Candidate, preflight
from stoker.decide.replica import Check
from stoker.drivers import files, spawn
from stoker.drivers.hosts.base import Order
from stoker.drivers.store.base import Resource
from stoker.engines import registry
from stoker.engines.base import Ask, Engine, Model
from stoker.spec.composed import ModelReplicaSpec
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.template import Container

_TAIL_BYTES: Final = 65536

@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is known of a replica's files before it starts."""

    files: Check
    preflight: Check | None


def engine_of(template: ModelDeploymentSpec) -> Engine:
    """Find the adapter; an opaque deployment has the one of `command`."""
    return registry.get(template.block.name)


def look(desk: Desk, resource: Resource, spec: ModelReplicaSpec, engine: Engine) -> Sight:
    """Look at the model's files and judge them; cheap when nothing changed."""
    want = want_of(desk, resource, spec.template)
    if want is None:
        found = Look(files=Check(ok=True, at=clock.now(), reason="NotNeeded", message="the engine brings its own model"))
    else:
        found = desk.stock.look(want)
    if not found.files.ok:
        return Sight(files=found.files, preflight=None)
    return Sight(files=found.files, preflight=_judge(desk, resource, spec.template, engine=engine, found=found))


def fetch(desk: Desk, resource: Resource, spec: ModelReplicaSpec) -> None:
    """Start bringing the model's files here, unless that is under way."""
    want = want_of(desk, resource, spec.template)
    if want is not None:
        desk.stock.fetch(want)


def want_of(desk: Desk, resource: Resource, template: ModelDeploymentSpec) -> Want | None:
    """Name the files that a deployment needs; None when its engine sees to that itself."""
    if template.model_cache_ref is not None:
        return desk.stock.cache(resource.namespace, template.model_cache_ref.name)
    source = template.model
    if source is None:
        return None
    return Want(name=source.name or "", path=source.path or "", repo=source.repo or "", revision=source.revision)


def _judge(desk: Desk, resource: Resource, template: ModelDeploymentSpec, *, engine: Engine, found: Look) -> Check:
    accepted = set(resource.annotations.get(LICENCES, "").split())
    source = template.model
    own = source is not None and source.accept_licence
    candidate = Candidate(
        engine=engine.name,
        runtime=_runtime_kind(template),
        formats=engine.capabilities.formats,
        model=found.model,
        context_tokens=template.block.context_tokens,
        architectures=desk.stock.architectures(engine.name, template.runtime.kind, found.model),
        licence=found.licence,
        licence_clause=found.clause,
        licence_accepted=own or found.licence_accepted or bool(accepted & {found.title, "*"}),
        refused=found.refused or _refusal(template, engine, found),
        refused_action=found.refused_action or "correct spec.engine",
    )
    verdict = preflight(candidate)
    return Check(
        ok=verdict.ok, at=clock.now(), reason=verdict.reason, message=verdict.message, action=verdict.action
    )


def _refusal(template: ModelDeploymentSpec, engine: Engine, found: Look) -> str:
    """Ask the adapter for a command line before anything is started: a field that it lacks is told now."""
    try:
        engine.launch(_ask(template, found.model, engine=engine, served="preflight", port=1, secret="", devices=()))  # noqa: S106
    except Invalid as error:
        return str(error)
    return ""


def _runtime_kind(template: ModelDeploymentSpec) -> str:
    if template.template is not None and template.template.spec is not None:
        return "container"
    if template.block.name == "command":
        return "command"
    return template.runtime.kind


def served_name(resource: Resource, spec: ModelReplicaSpec) -> str:
    """Tell by which name the engine is to know its model; an opaque command finds it in its environment."""
    return f"{resource.namespace}/{spec.deployment}"


def upstream_name(resource: Resource, spec: ModelReplicaSpec, listed: Sequence[str]) -> str:
    """Tell by which name the engine does know its model: an opaque command may have chosen its own."""
    wanted = served_name(resource, spec)
    return listed[0] if spec.template.opaque and listed and wanted not in listed else wanted


def order(
    desk: Desk,
    resource: Resource,
    spec: ModelReplicaSpec,
    *,
    engine: Engine,
    attempt: int,
    devices: tuple[str, ...],
) -> Order:
    """Write one attempt as an order. Raises Invalid for what the adapter cannot map."""
    want = want_of(desk, resource, spec.template)
    model = desk.stock.look(want).model if want is not None else None
    port = desk.host.lease_port()
    secret = secrets.token_urlsafe(32)
    served = served_name(resource, spec)
    launch = engine.launch(
        _ask(spec.template, model, engine=engine, served=served, port=port, secret=secret, devices=devices)
    )
    env = {
        "PATH": os.defpath,
        "HOME": str(desk.layout.root / "engine-home"),
        "LANG": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        **launch.env,
    }
    (desk.layout.root / "engine-home").mkdir(mode=0o700, exist_ok=True)
    return Order(
        uid=resource.uid,
        attempt=attempt,
        spec_hash=spec.template_hash,
        argv=launch.argv,
        env=env,
        port=port,
        devices=devices,
        secret=secret,
    )


def _ask(
    template: ModelDeploymentSpec,
    model: Model | None,
    *,
    engine: Engine,
    served: str,
    port: int,
    secret: str,
    devices: tuple[str, ...],
) -> Ask:
    return Ask(
        block=template.block,
        model=model,
        served_name=served,
        port=port,
        secret=secret,
        executable=_executable(template, engine),
        devices=devices,
        lora={a.name: a.path for a in template.lora_adapters},
        cores=max(1, int(template.resources.cpu or os.cpu_count() or 1)),
        extra_args=template.block.extra_args,
        env=template.block.env,
    )


def _executable(template: ModelDeploymentSpec, engine: Engine) -> tuple[str, ...]:
    """Tell how the engine's program is started, before its own arguments."""
    runtime = template.runtime
    if runtime.kind == "embedded":
        module = "stoker.rehearse" if engine.name == "simulated" else "stoker.drivers.llama_server"
        return (sys.executable, "-m", module)
    if runtime.kind == "python":
        return (runtime.path or sys.executable, *registry.python_module(engine.name))
    if runtime.kind == "command":
        return runtime.command or (runtime.path or "",)
    container = _container(template)
    return (*container.command, *container.args) if container else (runtime.image or "",)


def _container(template: ModelDeploymentSpec) -> Container | None:
    if template.template is None or template.template.spec is None:
        return None
    return template.template.spec.engines[0].members[0].template.spec.containers[0]


def log_tail(path: str) -> Sequence[str]:
    """Read the last lines of a log; none when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-200:]
    except OSError:
        return ()


def secret_of(path: str) -> str:
    """Read the secret of a running attempt."""
    data = files.read(Path(path)) if path else None
    return data.decode().strip() if data else ""


def gateway_address(desk: Desk) -> str:
    """Where the gateways listen, as the supervisor's run file tells."""
    background = spawn.find(desk.layout)
    return f"http://{background.listen}" if background and background.listen else ""


def probe_key(desk: Desk) -> bytes:
    """Read the key that signs probes."""
    return files.secret(desk.layout.probe_key).encode()
