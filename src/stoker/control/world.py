"""What is there? One observation for a whole pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from stoker.base import clock
from stoker.control.desk import Desk
from stoker.control.gateways import observe_gateways
from stoker.decide.acknowledge import Gateways
from stoker.drivers import devices
from stoker.drivers.store.base import Resource
from stoker.facts.observed import Device, Phase, Running
from stoker.spec import kinds


@dataclass(slots=True, kw_only=True)
class World:
    """Everything that one pass looks at. ``held`` grows as the pass places replicas."""

    now: float
    resources: Mapping[str, Sequence[Resource]]
    running: Mapping[str, Sequence[Running]]  # by uid of the replica
    gateways: Gateways
    devices: Sequence[Device]
    held: dict[str, str] = field(default_factory=dict)

    def all(self, kind: str) -> Sequence[Resource]:
        """Read the resources of a kind."""
        return self.resources.get(kind, ())


@lru_cache(maxsize=1)
def _devices() -> Sequence[Device]:
    """List the devices once: they do not change while a process lives, and asking each pass would wake the GPUs."""
    return devices.survey(Path("/")).devices


def cores() -> int:
    """How many cores this machine, or the container around us, gives to engines."""
    cpu = next((d for d in _devices() if d.kind == "cpu"), None)
    return int(cpu.attributes.get("cores", "1")) if cpu else 1


async def observe(desk: Desk) -> World:
    """Look once at the store, the host, the gateways and the devices."""
    resources = {kind: await desk.store.list(kind) for kind in kinds.KINDS}
    running: dict[str, list[Running]] = {}
    for attempt in await desk.host.list():
        running.setdefault(attempt.run.uid, []).append(attempt)
    names = {r.uid: f"{r.namespace}/{r.name}" for r in resources["ModelReplica"]}
    held = {
        device: names.get(uid, uid)
        for uid, attempts in running.items()
        for attempt in attempts
        if attempt.phase not in (Phase.EXITED, Phase.LOST)
        for device in attempt.run.devices
        if device != "cpu"
    }
    return World(
        now=clock.now(),
        resources=resources,
        running=running,
        gateways=observe_gateways(desk.layout),
        devices=_devices(),
        held=held,
    )
