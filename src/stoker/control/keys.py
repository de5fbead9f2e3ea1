"""Keys of callers: made, listed, revoked. Only hashes are kept."""

import asyncio
import hashlib
import secrets
from dataclasses import dataclass
from typing import Final, cast

from stoker.base import clock
from stoker.base.errors import Conflict, Invalid, NotFound
from stoker.base.json import Json, JsonObject
from stoker.control.advice import sessions
from stoker.control.desk import Desk
from stoker.control.gateways import observe_gateways
from stoker.decide.acknowledge import callers_acknowledged
from stoker.drivers.store.base import Event, Resource
from stoker.spec.caller import CallerSpec
from stoker.spec.kinds import dump_spec, parse_spec
from stoker.spec.meta import check_name, epoch

PREFIX: Final = "sk-stoker-"
_CHAT: Final = "chat"  # the caller of `stoker chat`: its expired keys are swept, nobody looks them up


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A key for whom, for how long (0: for ever), for which services (empty: all that are exposed)."""

    caller: str
    namespace: str
    life: float
    services: tuple[str, ...] = ()


async def create(desk: Desk, wanted: Wanted, *, actor: str) -> JsonObject:
    """Make a key, keep its hash, and answer it once. Returns when the gateways know it, if any run."""
    key = PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    identity = f"k-{secrets.token_hex(4)}"
    credential: JsonObject = {"id": identity, "type": "APIKey", "hash": f"sha256:{digest}"}
    if wanted.life:
        credential["expiresAt"] = clock.rfc3339(clock.now() + wanted.life)
    before = desk.callers_generation
    for _ in range(5):
        caller = await _caller(desk, wanted)
        _check(caller, wanted)
        held = cast("list[Json]", caller.spec.get("credentials") or [])
        if wanted.caller == _CHAT:
            held = [c for c in held if not _expired(cast("JsonObject", c))]
        spec = dump_spec(parse_spec("Caller", {**caller.spec, "credentials": [*held, credential]}))
        try:
            made = _with(caller, spec)
            await desk.store.apply([made], actor=actor)
            break
        except Conflict:
            continue
    else:
        raise Conflict(f"Caller/{wanted.caller} is being changed by somebody else; try again")
    await _note(desk, wanted.caller, "KeyCreated", f"key {identity}", actor=actor)
    await _settle(desk, before)
    told = [line for line in await sessions.advise(desk, [made], now=clock.now()) if identity in line]
    return {"id": identity, "key": key, "warnings": cast("list[Json]", told)}


async def listing(desk: Desk) -> list[Json]:
    """Tell all keys, newest last, without anything that could be used."""
    rows: list[Json] = []
    for caller in await desk.store.list("Caller"):
        spec = cast("CallerSpec", parse_spec("Caller", caller.spec))
        for credential in spec.credentials:
            state = "revoked" if credential.revoked else "expired" if _over(credential.expires_at) else "valid"
            rows.append(
                {
                    "id": credential.key_id,
                    "caller": caller.name,
                    "state": state,
                    "expires": credential.expires_at or "never",
                    "services": ", ".join(spec.allow.services) or "none",
                }
            )
    return rows


async def revoke(desk: Desk, key_id: str, *, actor: str) -> JsonObject:
    """Revoke a key. Returns when every live gateway worker refuses it. Raises NotFound."""
    for caller in await desk.store.list("Caller"):
        spec = cast("CallerSpec", parse_spec("Caller", caller.spec))
        if key_id not in {c.key_id for c in spec.credentials}:
            continue
        kept = tuple(c.model_copy(update={"revoked": True}) if c.key_id == key_id else c for c in spec.credentials)
        changed = spec.model_copy(update={"credentials": kept})
        before = desk.callers_generation
        await desk.store.apply([_with(caller, dump_spec(changed))], actor=actor)
        await _note(desk, caller.name, "KeyRevoked", f"key {key_id}", actor=actor)
        known = await _settle(desk, before)
        return {
            "id": key_id,
            "message": "every gateway worker refuses it"
            if known
            else "no gateway runs now; it is refused from the start",
        }
    if key_id.startswith(PREFIX):  # a whole key by mistake: never into an error, a log or a shell's history again
        raise NotFound("that is a key itself; `stoker key list` shows the id by which it is revoked")
    raise NotFound(f"there is no key '{key_id}'; `stoker key list` shows all")


def _check(caller: Resource, wanted: Wanted) -> None:
    """Refuse a key that would allow more than was asked for. Raises Invalid."""
    allowed = cast("JsonObject", caller.spec.get("allow") or {}).get("services")
    if wanted.services and allowed != _services(wanted):
        raise Invalid(
            f"Caller/{caller.name} is there already, for {allowed}: a key has what its caller has;"
            " change the caller, or make the key for another one"
        )


def _services(wanted: Wanted) -> list[Json]:
    return [s if "/" in s or s == "*" else f"{wanted.namespace}/{s}" for s in wanted.services or ("*",)]


async def _caller(desk: Desk, wanted: Wanted) -> Resource:
    try:
        return await desk.store.get("Caller", "", wanted.caller)
    except NotFound:
        try:
            check_name(wanted.caller)
        except ValueError as error:
            raise Invalid(f"caller: {error}") from error
        spec: JsonObject = {"kind": "Person", "allow": {"services": _services(wanted)}}
        return Resource(kind="Caller", name=wanted.caller, spec=spec)


def _with(caller: Resource, spec: JsonObject) -> Resource:
    return Resource(
        kind=caller.kind,
        name=caller.name,
        resource_version=caller.resource_version,
        labels=caller.labels,
        annotations=caller.annotations,
        finalizers=caller.finalizers,
        spec=spec,
    )


async def _settle(desk: Desk, before: int, *, within: float = 5.0) -> bool:
    """Wait until every live worker has callers newer than generation ``before``; False when no worker runs."""
    desk.wake()
    until = clock.mono() + within
    while clock.mono() < until:
        await asyncio.sleep(0.05)
        gateways = observe_gateways(desk.layout)
        if gateways.gone:
            return False
        if desk.callers_generation > before and callers_acknowledged(
            gateways, desk.callers_generation, now=clock.now()
        ):
            return True
    raise Conflict(f"the change is stored, but not every gateway worker has taken it over within {within:.0f} s")


async def _note(desk: Desk, caller: str, reason: str, message: str, *, actor: str) -> None:
    await desk.tell(Event(at=clock.now(), kind="Caller", name=caller, reason=reason, message=message, actor=actor))


def _expired(credential: JsonObject) -> bool:
    until = credential.get("expiresAt")
    return isinstance(until, str) and _over(until)


def _over(until: str | None) -> bool:
    return until is not None and epoch(until) <= clock.now()
