"""From a replica's spec to an order for the host: which files, which program, which command line."""

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.control.apply import LICENCES
from stoker.control.desk import Desk
from stoker.control.evidence.stock import Look, Want
from stoker.control.world import cores
from stoker.decide.preflight import Candidate, preflight
from stoker.decide.replica import Check
from stoker.drivers import files
from stoker.drivers.hosts.base import Order
from stoker.drivers.store.base import Resource
from stoker.engines import registry
from stoker.engines.base import Ask, Engine, Model
from stoker.spec.composed import ModelReplicaSpec
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.kinds import parse_spec
from stoker.spec.template import Container

_TAIL_BYTES: Final = 65536
_HEAD_BYTES: Final = 1 << 20  # vLLM writes some hundred kilobytes before it is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One replica with its spec and the adapter of its engine."""

    resource: Resource
    spec: ModelReplicaSpec
    engine: Engine

    @property
    def key(self) -> str:
        """Its name in the routes."""
        return f"{self.resource.namespace}/{self.resource.name}"

    @property
    def served(self) -> str:
        """By which name the engine is to know its model; an opaque command finds it in its environment."""
        return f"{self.resource.namespace}/{self.spec.deployment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """What one attempt gets for itself."""

    port: int
    secret: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is known of a replica's files before it starts."""

    files: Check
    preflight: Check | None


def engine_of(template: ModelDeploymentSpec) -> Engine:
    """Find the adapter; an opaque deployment has the one of `command`."""
    return registry.get(template.block.name)


def case_of(resource: Resource) -> Case:
    """Read a replica from the store."""
    spec = cast("ModelReplicaSpec", parse_spec("ModelReplica", resource.spec))
    return Case(resource=resource, spec=spec, engine=engine_of(spec.template))


def look(desk: Desk, case: Case) -> Sight:
    """Look at the model's files and judge them; cheap when nothing changed."""
    want = _want(desk, case)
    if want is None:
        found = Look(
            files=Check(ok=True, at=clock.now(), reason="NotNeeded", message="the engine brings its own model")
        )
    else:
        found = desk.stock.look(want)
    if not found.files.ok:
        return Sight(files=found.files, preflight=None)
    return Sight(files=found.files, preflight=_judge(desk, case, found))


def chat_template(desk: Desk, case: Case) -> str:
    """Read the template that the model brings; empty where the files do not tell, or another one is asked for."""
    want = _want(desk, case)
    model = desk.stock.look(want).model if want is not None and not case.spec.template.block.chat_template else None
    return model.chat_template if model else ""


def fetch(desk: Desk, case: Case) -> None:
    """Start bringing the model's files here, unless that is under way."""
    want = _want(desk, case)
    if want is not None:
        desk.stock.fetch(want)


def _want(desk: Desk, case: Case) -> Want | None:
    """Name the files that a deployment needs; None when its engine sees to that itself."""
    resource, template = case.resource, case.spec.template
    if template.model_cache_ref is not None:
        return desk.stock.cache(resource.namespace, template.model_cache_ref.name)
    source = template.model
    if source is None:
        return None
    return Want(name=source.name or "", path=source.path or "", repo=source.repo or "", revision=source.revision)


def _judge(desk: Desk, case: Case, found: Look) -> Check:
    resource, template, engine = case.resource, case.spec.template, case.engine
    accepted = set(resource.annotations.get(LICENCES, "").splitlines())
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
        refused=found.refused or _refusal(case, found),
        refused_action=found.refused_action or "correct spec.engine",
    )
    verdict = preflight(candidate)
    return Check(ok=verdict.ok, at=clock.now(), reason=verdict.reason, message=verdict.message, action=verdict.action)


def _refusal(case: Case, found: Look) -> str:
    """Ask the adapter for a command line before anything is started: a field that it lacks is told now."""
    try:
        case.engine.launch(_ask(case, found.model, _Process(port=1)))
    except Invalid as error:
        return str(error)
    return ""


def _runtime_kind(template: ModelDeploymentSpec) -> str:
    if template.template is not None and template.template.spec is not None:
        return "container"
    if template.block.name == "command":
        return "command"
    return template.runtime.kind


def upstream_name(case: Case, listed: Sequence[str]) -> str:
    """Tell by which name the engine does know its model: an opaque command may have chosen its own."""
    return listed[0] if case.spec.template.opaque and listed and case.served not in listed else case.served


def order(desk: Desk, case: Case, *, attempt: int, devices: tuple[str, ...]) -> Order:
    """Write one attempt as an order. Raises Invalid for what the adapter cannot map."""
    want = _want(desk, case)
    model = desk.stock.look(want).model if want is not None else None
    process = _Process(port=desk.host.lease_port(), secret=secrets.token_urlsafe(32), devices=devices)
    launch = case.engine.launch(_ask(case, model, process))
    home = desk.layout.root / "engine-home"
    home.mkdir(mode=0o700, exist_ok=True)
    # Complete: nothing of the controller's own environment reaches an engine. Its files are here already, so it
    # must not ask a hub for them.
    env = {"PATH": os.defpath, "HOME": str(home), "LANG": "C.UTF-8", "HF_HUB_OFFLINE": "1", **launch.env}
    return Order(
        uid=case.resource.uid,
        attempt=attempt,
        spec_hash=case.spec.template_hash,
        argv=launch.argv,
        env=env,
        port=process.port,
        devices=devices,
        secret=process.secret,
    )


def _ask(case: Case, model: Model | None, process: _Process) -> Ask:
    template = case.spec.template
    return Ask(
        block=template.block,
        model=model,
        served_name=case.served,
        port=process.port,
        secret=process.secret,
        executable=_executable(template, case.engine),
        devices=process.devices,
        lora={a.name: a.path for a in template.lora_adapters},
        cores=max(1, int(template.resources.cpu or cores())),
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


def log_head(path: str) -> Sequence[str]:
    """Read the first lines of a log, where an engine tells what it has loaded; none when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_HEAD_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ()


def secret_of(path: str) -> str:
    """Read the secret of a running attempt."""
    data = files.read(Path(path)) if path else None
    return data.decode().strip() if data else ""


def probe_key(desk: Desk) -> bytes:
    """Read the key that signs probes."""
    return files.secret(desk.layout.probe_key).encode()
