"""The controller's API: resources, events, logs, usage, keys. On a Unix socket (0600), and only with the token.

Every write names its actor, and every refusal says what is wrong and what would be right.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from stoker import __version__
from stoker.base.errors import Conflict, Denied, Driver, Fault, Invalid, NotFound, StokerError, nearest
from stoker.base.json import Json, JsonObject
from stoker.control import apply, keys, report
from stoker.control.desk import Desk
from stoker.control.explain import sessions
from stoker.spec import kinds

_STATUS: Final[dict[type[StokerError], int]] = {Invalid: 400, NotFound: 404, Conflict: 409, Denied: 401, Driver: 502}
_log = logging.getLogger("control.api")

Handler = Callable[[Request, Desk], Awaitable[Json]]


def build(desk: Desk, *, token: str) -> Starlette:
    """Build the application."""

    def route(path: str, handler: Handler, method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            return await _guarded(request, desk, handler=handler, token=token)

        return Route(path, endpoint, methods=[method])

    async def follow(request: Request) -> Response:
        try:
            _allowed(request, token)
            lines = await report.log_lines(
                desk,
                request.path_params["namespace"],
                request.path_params["name"],
                previous=request.query_params.get("previous") == "true",
                tail=int(request.query_params.get("tail") or 0),
                follow=request.query_params.get("follow") == "true",
            )
        except StokerError as error:
            return _refusal(error)
        return StreamingResponse(lines, media_type="text/plain; charset=utf-8")

    return Starlette(
        routes=[
            route("/v1/healthz", _health),
            route("/v1/status", _status),
            route("/v1/apply", _apply, "POST"),
            route("/v1/resources/{kind}", _list),
            route("/v1/resources/{kind}/{namespace}/{name}", _get),
            route("/v1/resources/{kind}/{namespace}/{name}", _delete, "DELETE"),
            route("/v1/events", _events),
            Route("/v1/logs/{namespace}/{name}", follow, methods=["GET"]),
            route("/v1/usage", _usage),
            route("/v1/sessions", _sessions),
            route("/v1/sessions/{session}", _session),
            route("/v1/keys", _keys),
            route("/v1/keys", _make_key, "POST"),
            route("/v1/keys/{id}/revoke", _revoke_key, "POST"),
            route("/v1/engines", _engines),
            route("/v1/engines", _add_engine, "POST"),
            route("/v1/backup", _backup, "POST"),
        ]
    )


async def _guarded(request: Request, desk: Desk, *, handler: Handler, token: str) -> Response:
    try:
        _allowed(request, token)
        answer = await handler(request, desk)
    except StokerError as error:
        return _refusal(error)
    except Exception:  # noqa: BLE001 - the HTTP edge: one bad request must not end the API
        _log.exception("request failed", extra={"fields": {"path": request.url.path}})
        return _refusal(Driver("the controller failed at this request; its log has the details"))
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _allowed(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise Denied("the API wants the token of keys/admin.token in the state directory")


def _refusal(error: StokerError) -> Response:
    problem: JsonObject = {"message": str(error), "type": type(error).__name__}
    if isinstance(error, Invalid):
        problem["faults"] = [
            {"message": f.message, "file": f.file, "line": f.line, "field": f.field, "hint": f.hint}
            for f in error.faults
        ]
    return Response(msgspec.json.encode({"error": problem}), _STATUS[type(error)], media_type="application/json")


def _actor(request: Request) -> str:
    return unquote(request.headers.get("x-stoker-actor", "")) or "api"


async def _body(request: Request) -> JsonObject:
    try:
        value = msgspec.json.decode(await request.body() or b"{}")
    except msgspec.DecodeError as error:
        raise Invalid(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Invalid("the body must be a JSON object")
    return value


def _text(body: JsonObject, field: str, default: str | None = None) -> str:
    value = body.get(field, default)
    if not isinstance(value, str) or (not value and default is None):
        raise Invalid(Fault(message="must be a string", field=field))
    return value


async def _health(_request: Request, desk: Desk) -> Json:
    return {"version": __version__, "passes": desk.passes}


async def _status(_request: Request, desk: Desk) -> Json:
    return await report.status(desk)


async def _apply(request: Request, desk: Desk) -> Json:
    body = await _body(request)
    sources = body.get("sources")
    if not isinstance(sources, list):
        raise Invalid(Fault(message="must be a list of {file, text}", field="sources"))
    texts = [
        apply.Source(file=_text(s, "file", ""), text=_text(s, "text", "")) for s in cast("list[JsonObject]", sources)
    ]
    ask = apply.Request(
        sources=tuple(texts),
        namespace=_text(body, "namespace", "default"),
        dry_run=body.get("dryRun") is True,
        accept_licences=tuple(str(x) for x in cast("list[Json]", body.get("acceptLicences") or [])),
    )
    return await apply.run(desk, ask, actor=_actor(request))


async def _list(request: Request, desk: Desk) -> Json:
    kind = kinds.find_kind(request.path_params["kind"])
    namespace = request.query_params.get("namespace") or None
    labels = report.labels(request.query_params.get("selector", ""))
    found = await desk.store.list(kind.name, namespace=namespace if kind.namespaced else None, labels=labels)
    return {"kind": kind.name, "items": [report.manifest(resource) for resource in found]}


async def _get(request: Request, desk: Desk) -> Json:
    kind, namespace, name = _named(request)
    try:
        return report.manifest(await desk.store.get(kind.name, namespace, name))
    except NotFound as error:
        there = [r.name for r in await desk.store.list(kind.name, namespace=namespace if kind.namespaced else None)]
        hint = nearest(name, there)
        raise NotFound(f"{error}; {hint}" if hint else str(error)) from error


async def _delete(request: Request, desk: Desk) -> Json:
    kind, namespace, name = _named(request)
    if kind.composed:
        raise Invalid(f"{kind.name} is composed by the controller; delete what it is composed from")
    resource = await desk.store.delete(kind.name, namespace, name, actor=_actor(request))
    desk.wake()
    return report.manifest(resource)


def _named(request: Request) -> report.Named:
    kind = kinds.find_kind(request.path_params["kind"])
    namespace = request.path_params["namespace"] if kind.namespaced else ""
    return report.Named(kind, namespace, request.path_params["name"])


async def _events(request: Request, desk: Desk) -> Json:
    asked = request.query_params
    found = await desk.store.events(
        kind=kinds.find_kind(asked["kind"]).name if asked.get("kind") else "",
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
        limit=int(asked.get("limit") or 200),
    )
    return {"items": [cast("Json", msgspec.to_builtins(event)) for event in found]}


async def _usage(request: Request, desk: Desk) -> Json:
    asked = request.query_params
    return await report.usage(
        desk,
        by=tuple(w for w in asked.get("by", "caller,model").split(",") if w),
        since=float(asked.get("since") or 0),
        records=asked.get("records") == "true",
        limit=int(asked.get("limit") or 100),
    )


async def _sessions(request: Request, desk: Desk) -> Json:
    asked = request.query_params
    return await sessions.listing(desk, since=float(asked.get("since") or 0), limit=int(asked.get("limit") or 30))


async def _session(request: Request, desk: Desk) -> Json:
    return await sessions.one(desk, str(request.path_params["session"]))


async def _keys(_request: Request, desk: Desk) -> Json:
    return {"items": await keys.listing(desk)}


async def _make_key(request: Request, desk: Desk) -> Json:
    body = await _body(request)
    life = body.get("lifeSeconds") or 0
    services = body.get("services")
    return await keys.create(
        desk,
        keys.Wanted(
            caller=_text(body, "caller"),
            namespace=_text(body, "namespace", "default"),
            life=float(life) if isinstance(life, int | float) else 0.0,
            services=tuple(str(s) for s in services) if isinstance(services, list) else (),
        ),
        actor=_actor(request),
    )


async def _revoke_key(request: Request, desk: Desk) -> Json:
    return await keys.revoke(desk, request.path_params["id"], actor=_actor(request))


async def _engines(_request: Request, desk: Desk) -> Json:
    return {"items": await report.engines(desk)}


async def _add_engine(request: Request, desk: Desk) -> Json:
    body = await _body(request)
    return await report.add_engine(
        desk, name=_text(body, "name"), kind=_text(body, "kind"), path=_text(body, "path"), actor=_actor(request)
    )


async def _backup(request: Request, desk: Desk) -> Json:
    path = _text(await _body(request), "path")
    await desk.backup(path)
    return {"path": path}
