"""Hand routes and callers to the gateways, and remember since which generation each endpoint has its state."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.control.desk import Desk
from stoker.control.published import quotas
from stoker.control.world import World
from stoker.decide.acknowledge import acknowledged
from stoker.decide.publish import Labelled, Offer, Published, Selector, publish
from stoker.decide.replica import Published as Seen
from stoker.drivers import files
from stoker.drivers.store.base import Event, Resource
from stoker.facts import door as entry
from stoker.facts.routes import (
    Caller,
    Callers,
    Endpoint,
    Key,
    Price,
    Routes,
    State,
    Subject,
    Timeouts,
    open_callers,
    open_routes,
    seal,
)
from stoker.spec import endpoint as outside
from stoker.spec import gateway as door
from stoker.spec.caller import CallerSpec
from stoker.spec.gateway import InferenceGatewaySpec
from stoker.spec.kinds import parse_spec
from stoker.spec.meta import epoch
from stoker.spec.service import ModelServiceSpec
from stoker.spec.usecase import UseCaseSpec

_log = logging.getLogger("control.routing")
_SPOKEN: Final = {"OpenAI": ("chat", "completions", "embeddings", "responses"), "Anthropic": ("messages",)}


@dataclass(slots=True)
class Board:
    """What is published now. ``since`` tells from which generation on an endpoint has its incarnation and state."""

    routes: Routes = field(default_factory=lambda: Routes(generation=0))
    callers: Callers = field(default_factory=lambda: Callers(generation=0))
    hidden: dict[str, str] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    stamps: dict[Path, tuple[int, int, int] | None] = field(default_factory=dict)  # of the files as we know them

    def untouched(self, path: Path) -> bool:
        """Tell whether a file is still the one that we wrote, or read whole; anything else is written again."""
        stamp = files.stamp(path)
        return stamp is not None and stamp == self.stamps.get(path)

    def write(self, path: Path, data: bytes) -> None:
        """Publish one file. Raises Driver."""
        files.replace(path, data)
        self.stamps[path] = files.stamp(path)

    def seen(self, endpoint: str, incarnation: str, world: World) -> Seen | None:
        """Tell how the gateways see one incarnation; None when they were not told of it."""
        for published in self.routes.endpoints:
            if published.name == endpoint and published.incarnation == incarnation:
                known = acknowledged(world.gateways, self.since.get(endpoint, self.routes.generation), now=world.now)
                return Seen(state=published.state, acknowledged=known)
        return None


def load(desk: Desk) -> Board:
    """Take up what an earlier controller published, so that generations go on growing."""
    board = Board()
    for path, read in ((desk.layout.routes, "routes"), (desk.layout.callers, "callers")):
        stamp, data = files.stamp(path), files.read(path)
        if data is None:
            continue
        try:
            if read == "routes":
                board.routes = open_routes(data)
                board.since = {e.name: board.routes.generation for e in board.routes.endpoints}
            else:
                board.callers = open_callers(data)
            board.stamps[path] = stamp
        except ValueError as error:
            # A damaged file: the gateways keep what they have; a generation from the clock is newer than any before.
            _log.warning("published file is damaged", extra={"fields": {"file": path.name, "error": str(error)}})
            board.routes = msgspec.structs.replace(board.routes, generation=int(path.stat().st_mtime))
            board.callers = msgspec.structs.replace(board.callers, generation=int(path.stat().st_mtime))
    desk.routes_generation, desk.callers_generation = board.routes.generation, board.callers.generation
    return board


async def update(desk: Desk, world: World, board: Board, *, endpoints: Sequence[Labelled]) -> None:
    """Publish routes and callers when they differ from what the gateways have. Raises Driver when it cannot.

    A file that somebody removed, damaged or put an older copy over is written again: it would be the policy of the
    next worker that starts.
    """
    lost = [path for path in board.stamps if not board.untouched(path)]
    tables = publish(_offers(world), [*endpoints, *_outside(desk, world)], exposed=_exposed(world))
    board.hidden = dict(tables.hidden)
    routes = _routes(desk, world, tables, generation=board.routes.generation)
    if routes != board.routes or not board.untouched(desk.layout.routes):
        routes = msgspec.structs.replace(routes, generation=board.routes.generation + 1)
        board.write(desk.layout.routes, seal(routes))
        before = {e.name: (e.incarnation, e.state) for e in board.routes.endpoints}
        for e in routes.endpoints:
            if before.get(e.name) != (e.incarnation, e.state):
                board.since[e.name] = routes.generation
        board.routes = routes
    callers = Callers(generation=board.callers.generation, callers=tuple(_caller(r) for r in world.all("Caller")))
    if callers != board.callers or not board.untouched(desk.layout.callers):
        callers = msgspec.structs.replace(callers, generation=board.callers.generation + 1)
        board.write(desk.layout.callers, seal(callers))
        board.callers = callers
    desk.routes_generation, desk.callers_generation = board.routes.generation, board.callers.generation
    for path in lost:
        await _restored(desk, world, path.name)


async def _restored(desk: Desk, world: World, name: str) -> None:
    """Make an event for every gateway: whoever changed that file should hear why it did not last."""
    _log.warning("published file was changed from outside; written again", extra={"fields": {"file": name}})
    for gateway in world.all("InferenceGateway"):
        await desk.tell(
            Event(
                at=clock.now(),
                kind="InferenceGateway",
                namespace=gateway.namespace,
                name=gateway.name,
                reason="PolicyRestored",
                message=f"{name} was removed or changed by somebody else; it was written again",
                actor="controller",
                warning=True,
            )
        )


def gateway_specs(world: World) -> list[InferenceGatewaySpec]:
    """Read all gateways."""
    return [cast("InferenceGatewaySpec", parse_spec("InferenceGateway", g.spec)) for g in world.all("InferenceGateway")]


def service_spec(resource: Resource) -> ModelServiceSpec:
    """Read a service."""
    return cast("ModelServiceSpec", parse_spec("ModelService", resource.spec))


def use_case(world: World, resource: Resource) -> UseCaseSpec | None:
    """Find the use case of a service, with its preset filled in."""
    reference = service_spec(resource).use_case_ref
    if reference is None:
        return None
    found = next(
        (u for u in world.all("UseCase") if u.namespace == resource.namespace and u.name == reference.name), None
    )
    return cast("UseCaseSpec", parse_spec("UseCase", found.spec)).resolved() if found else None


def _exposed(world: World) -> list[dict[str, str]]:
    return [spec.service_selector.match_labels for spec in gateway_specs(world)]


def _offers(world: World) -> list[Offer]:
    gateways = gateway_specs(world)
    base = gateways[0].timeouts if gateways else door.Timeouts()
    cap = next((g.limits.max_output_tokens for g in gateways if g.limits.max_output_tokens), 0)
    offers = []
    for resource in world.all("ModelService"):
        spec = service_spec(resource)
        case = use_case(world, resource)
        offers.append(
            Offer(
                namespace=resource.namespace,
                name=resource.name,
                labels=resource.labels,
                selectors=tuple(
                    Selector(labels=e.selector.match_labels, name=e.name or "", weight=e.weight, priority=e.priority)
                    for e in spec.endpoints
                ),
                aliases=spec.aliases,
                timeouts=_timeouts(spec.timeouts, base),
                max_output_tokens=spec.limits.max_output_tokens or cap or 4096,
                policy=spec.routing.policy,
                session_header=spec.routing.session.header.lower() if spec.routing.session else "",
                normalise=spec.routing.normalise.key,
                strip=spec.routing.normalise.prompt,
                mirror=spec.mirror.endpoint if spec.mirror else "",
                mirror_percent=spec.mirror.percent if spec.mirror else 0.0,
                duplicates=spec.routing.duplicates,
                limits=quotas.of_service(spec.limits),
                max_queued=spec.limits.max_queued,
                interactive=case is None or case.mode != "Batch",
            )
        )
    return offers


def _timeouts(own: door.Timeouts, base: door.Timeouts) -> Timeouts:
    default = Timeouts()
    return Timeouts(
        connect=own.connect or base.connect or default.connect,
        first_byte=own.first_byte or base.first_byte or default.first_byte,
        idle=own.idle or base.idle or default.idle,
        max_generation=own.max_generation or base.max_generation,
        request=own.request or base.request,
    )


def _outside(desk: Desk, world: World) -> list[Labelled]:
    """Endpoints that somebody else runs: they are served as written."""
    found = []
    for resource in world.all("ModelEndpoint"):
        spec = cast("outside.ModelEndpointSpec", parse_spec("ModelEndpoint", resource.spec))
        credential = spec.credential
        secret = ""
        if credential is not None:
            named = f"{credential.secret_ref.name}.{credential.secret_ref.key}" if credential.secret_ref else ""
            secret = credential.file or str(desk.layout.keys / named)
        made = Endpoint(
            name=f"{resource.namespace}/{resource.name}",
            incarnation=f"{resource.uid}-{resource.generation}",
            state=State.DRAIN if resource.deleted_at is not None else State.SERVE,
            origin=spec.origin.rstrip("/"),
            prefix=spec.api.prefix or "/v1",
            upstream_model=spec.model,
            credential_file=secret,
            engine="external",
            dialects=spec.api.dialects or _SPOKEN[spec.api.schema_name],
            key_header=spec.api.schema_name == "Anthropic",
            refresh=(credential.refresh or 0.0) if credential is not None else 0.0,
            price=_price(spec.price),
            slots=spec.max_concurrent,
            queue=256,
            context_tokens=spec.context_tokens,
            stream_upstream=False,
        )
        found.append(
            Labelled(
                endpoint=made,
                namespace=resource.namespace,
                labels={**resource.labels, "stoker.dev/endpoint": resource.name},
            )
        )
    return found


def _price(asked: outside.Price | None) -> Price | None:
    if asked is None:
        return None
    return Price(
        input_usd=asked.input_per_million_usd,
        cached_usd=asked.cached_per_million_usd,
        output_usd=asked.output_per_million_usd,
    )


def _routes(desk: Desk, world: World, tables: Published, *, generation: int) -> Routes:
    specs = gateway_specs(world)
    first = specs[0] if specs else InferenceGatewaySpec()
    plain = Routes(generation=0)
    return Routes(
        generation=generation,
        services=tables.services,
        endpoints=tables.endpoints,
        dialects=first.dialects,
        body_bytes=first.limits.body_bytes or plain.body_bytes,
        max_concurrent=first.limits.max_concurrent or 0,
        commit_after=plain.commit_after if first.commit_after is None else first.commit_after,
        keep_alive=plain.keep_alive if first.keep_alive is None else first.keep_alive,
        probe_key_file=str(desk.layout.probe_key),
        door=_door(first),
        shared_limits=quotas.shared(first.shared_limits),
    )


def _door(spec: InferenceGatewaySpec) -> entry.Door:
    auth, cors, log = spec.auth, spec.cors, spec.access_log
    return entry.Door(
        auth=entry.Auth(
            api_keys="APIKey" in auth.methods,
            jwt=_jwt(auth.jwt) if auth.jwt else None,
            renewal=auth.renewal,
            cut_revoked=auth.on_revoke == "Cut",
        ),
        cors=entry.Cors(origins=cors.origins, headers=cors.headers, max_age=cors.max_age, credentials=cors.credentials)
        if cors
        else None,
        access_log=entry.AccessLog(stdout=log.to == "Stdout", max_bytes=log.max_size, keep=log.keep) if log else None,
        listeners=tuple(
            entry.Listener(
                port=each.port,
                cert_file=each.tls.cert_file if each.tls else "",
                key_file=each.tls.key_file if each.tls else "",
                trusted_proxies=each.trusted_proxies,
            )
            for each in spec.listeners
        ),
        open=spec.open,
    )


def _jwt(spec: door.Jwt) -> entry.Jwt:
    return entry.Jwt(
        issuer=spec.issuer,
        audience=spec.audience,
        jwks_uri=spec.jwks_uri,
        jwks_file=spec.jwks_file,
        caller_claim=spec.caller_claim,
        clock_skew=spec.clock_skew,
        algorithms=spec.algorithms,
        refresh=spec.refresh,
    )


def _caller(resource: Resource) -> Caller:
    spec = cast("CallerSpec", parse_spec("Caller", resource.spec))
    keys = tuple(
        Key(
            id=c.key_id,
            sha256=(c.hash or "").removeprefix("sha256:"),
            not_before=epoch(c.not_before) if c.not_before else 0.0,
            expires_at=epoch(c.expires_at) if c.expires_at else None,
            revoked=c.revoked or resource.deleted_at is not None,
        )
        for c in spec.credentials
        if c.hash
    )
    subjects = tuple(
        Subject(
            id=c.key_id,
            subject=c.subject,
            issuer=c.issuer,
            not_before=epoch(c.not_before) if c.not_before else 0.0,
            expires_at=epoch(c.expires_at) if c.expires_at else None,
            revoked=c.revoked or resource.deleted_at is not None,
        )
        for c in spec.credentials
        if c.type == "JWT"
    )
    limits = spec.limits
    return Caller(
        name=resource.name,
        keys=keys,
        subjects=subjects,
        services=spec.allow.services,
        limits=quotas.of(limits),
        models={name: quotas.of(own) for name, own in sorted(limits.models.items())},
        priority=spec.priority,
        cut_revoked=None if spec.on_revoke is None else spec.on_revoke == "Cut",
    )


def refused(error: Driver) -> None:
    """Log that nothing could be published; requests go on by the last routes."""
    _log.error("cannot publish", extra={"fields": {"error": str(error)}})
