"""On which devices may a replica run?

The local machine is one node. Accelerators are exclusive: a device that another replica holds is taken until the whole
subtree of its engine has gone. The CPU is shared. Devices are chosen by the selectors, in the order of their ids, so
the same world gives the same answer; when there is no room, the reason names what was looked at and who holds it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoker.decide.select import Mismatch, matches
from stoker.facts.observed import Device

CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Devices of one kind: how many, and which expressions each must satisfy."""

    count: int
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The devices for a replica, or None and why there is no room. ``shared``: other engines may run beside it."""

    devices: tuple[str, ...] | None
    why: str = ""
    shared: bool = False


def place(needs: Sequence[Need], devices: Sequence[Device], *, held: Mapping[str, str]) -> Placement:
    """Choose devices for one replica; ``held`` maps a device id to the replica that has it."""
    if not needs:
        cpu = next((d for d in devices if d.kind == CPU), None)
        if cpu is None:
            return Placement(devices=None, why="this machine reports no CPU to run on")
        return Placement(devices=(cpu.id,), shared=True)
    chosen: list[str] = []
    for need in needs:
        found, why = _candidates(need, devices)
        free = [d.id for d in found if d.id not in held and d.id not in chosen]
        if len(free) < need.count:
            return Placement(devices=None, why=_no_room(need, devices, [d.id for d in found], held=held, why=why))
        chosen += free[: need.count]
    return Placement(devices=tuple(chosen))


def assume(held: Mapping[str, str], placement: Placement, replica: str) -> dict[str, str]:
    """Fold one placement of this pass into the ledger, so that the next replica sees it."""
    if placement.shared or placement.devices is None:
        return dict(held)
    return {**held, **dict.fromkeys(placement.devices, replica)}


def _candidates(need: Need, devices: Sequence[Device]) -> tuple[list[Device], str]:
    """Devices that satisfy every expression, and what an expression that failed to evaluate said."""
    found: list[Device] = []
    trouble = ""
    for device in sorted((d for d in devices if d.kind != CPU), key=lambda d: d.id):
        try:
            if all(matches(expression, device) for expression in need.expressions):
                found.append(device)
        except Mismatch as error:
            trouble = str(error)
    return found, trouble


def _no_room(need: Need, devices: Sequence[Device], found: Sequence[str], *, held: Mapping[str, str], why: str) -> str:
    accelerators = [d for d in devices if d.kind != CPU]
    if not accelerators:
        return f"it needs {need.count} accelerator(s), and this machine has none"
    if len(found) < need.count:
        seen = "; ".join(f"{d.id}: {d.name}, {d.memory_bytes / 2**20:.0f} MiB" for d in accelerators)
        detail = f"; an expression failed: {why}" if why else ""
        return f"{len(found)} of {len(accelerators)} devices match, {need.count} are needed ({seen}){detail}"
    holders = ", ".join(f"{d} is held by {held[d]}" for d in found if d in held)
    return f"{need.count} devices are needed, {len(found)} match, but {holders}"
