"""Will an agent's credential outlive its work? One that ends in the middle of a session loses what that holds."""

from collections.abc import Iterator, Sequence
from typing import cast

from stoker.control.desk import Desk
from stoker.drivers.store.base import Resource
from stoker.spec.caller import CallerCredential, CallerSpec
from stoker.spec.kinds import parse_spec
from stoker.spec.meta import epoch
from stoker.spec.service import ModelServiceSpec
from stoker.spec.usecase import UseCaseSpec


async def advise(desk: Desk, changed: Sequence[Resource], *, now: float) -> list[str]:
    """Look at the agents among ``changed``, as they stand beside what is stored."""
    agents = [r for r in changed if r.kind == "Caller" and r.spec.get("kind") == "Agent"]
    if not agents:
        return []
    services = await _merged(desk, "ModelService", changed)
    cases = await _merged(desk, "UseCase", changed)
    return [line for agent in agents for line in shortfalls(agent, services, cases, now=now)]


async def _merged(desk: Desk, kind: str, changed: Sequence[Resource]) -> list[Resource]:
    found = {(r.namespace, r.name): r for r in await desk.store.list(kind)}
    return list((found | {(r.namespace, r.name): r for r in changed if r.kind == kind}).values())


def shortfalls(
    agent: Resource, services: Sequence[Resource], cases: Sequence[Resource], *, now: float
) -> Iterator[str]:
    """Name each credential that ends before the longest session for which it may be used."""
    spec = cast("CallerSpec", parse_spec("Caller", agent.spec))
    hours, case = max(_sessions(spec, services, cases), default=(0.0, ""))
    for credential in spec.credentials:
        left = _hours(credential, now)
        if left is not None and left < hours:
            yield (
                f"Caller/{agent.name}: credential {credential.key_id} lives {max(left, 0.0):.1f} h, and sessions of "
                f"UseCase/{case} last {hours:g} h: an agent would be refused in the middle of its work; give it a "
                "longer life, and renew it between sessions"
            )


def _hours(credential: CallerCredential, now: float) -> float | None:
    """How long it can be used; None: without end, or not at all."""
    if credential.revoked or credential.expires_at is None:
        return None
    begins = epoch(credential.not_before) if credential.not_before else now
    return (epoch(credential.expires_at) - max(now, begins)) / 3600


def _sessions(spec: CallerSpec, services: Sequence[Resource], cases: Sequence[Resource]) -> Iterator[tuple[float, str]]:
    by_name = {(case.namespace, case.name): case for case in cases}
    for service in services:
        if "*" not in spec.allow.services and f"{service.namespace}/{service.name}" not in spec.allow.services:
            continue
        wanted = cast("ModelServiceSpec", parse_spec("ModelService", service.spec)).use_case_ref
        case = by_name.get((service.namespace, wanted.name)) if wanted is not None else None
        if case is not None:
            resolved = cast("UseCaseSpec", parse_spec("UseCase", case.spec)).resolved()
            yield resolved.session_hours or 0.0, case.name
