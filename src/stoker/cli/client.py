"""The command line's way to the controller: its API over the Unix socket, with the token of the state directory."""

from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import quote, urlencode

import msgspec

from stoker.base.errors import Conflict, Denied, Driver, Fault, Invalid, NotFound, StokerError
from stoker.base.json import Json, JsonObject
from stoker.base.layout import Layout
from stoker.drivers import files, spawn
from stoker.drivers.request import Call, Reply, fetch, stream

_ERRORS: Mapping[int, type[StokerError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}


class Client:
    """Calls one controller. Every method raises the error that the API answered."""

    def __init__(self, layout: Layout, *, actor: str = "") -> None:
        self._layout = layout
        self._actor = actor

    def get(self, path: str, **query: str | int | bool) -> JsonObject:
        """Read an object."""
        return self._call("GET", path, query=query)

    def post(self, path: str, value: Json = None, *, timeout: float = 60.0) -> JsonObject:
        """Send a value and read an object back."""
        return self._call("POST", path, value=value, timeout=timeout)

    def delete(self, path: str) -> JsonObject:
        """Ask for a deletion."""
        return self._call("DELETE", path)

    def lines(self, path: str, **query: str | int | bool) -> Iterator[str]:
        """Follow a text answer line by line, for as long as it lasts."""
        for line in stream(self._request("GET", path, query=query, timeout=3600.0), refused=_error):
            yield line.decode(errors="replace").rstrip("\n")

    def is_up(self) -> bool:
        """Tell whether a controller answers and has looked at the world."""
        try:
            return int(str(self.get("/v1/healthz").get("passes", 0))) > 0
        except (Driver, Denied):
            return False

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | bool] | None = None,
        value: Json = None,
        timeout: float = 60.0,
    ) -> JsonObject:
        call = self._request(method, path, query=query or {}, value=value, timeout=timeout)
        try:
            reply = fetch(call)
        except Driver as error:
            supervisor = spawn.find(self._layout)
            if supervisor is None or not supervisor.alive:
                raise _nobody(self._layout) from error
            log = self._layout.logs / "controller.log"
            raise Driver(
                f"the controller does not answer now (it starts, stops or fails; see {log}): {error}"
            ) from error
        if reply.status < 300:
            return reply.object()
        raise _error(reply)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | bool],
        value: Json = None,
        timeout: float = 60.0,
    ) -> Call:
        token = files.read(self._layout.admin_token)
        if token is None or not self._layout.api_socket.exists():
            raise _nobody(self._layout)
        asked = {
            name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in query.items() if v not in ("", None)
        }
        return Call(
            url=f"http://stoker{path}" + (f"?{urlencode(asked)}" if asked else ""),
            method=method,
            headers={
                "authorization": f"Bearer {token.decode().strip()}",
                "x-stoker-actor": quote(self._actor),
                "content-type": "application/json",
            },
            body=b"" if value is None else msgspec.json.encode(value),
            timeout=timeout,
            unix=self._layout.api_socket,
        )


def _nobody(layout: Layout) -> Driver:
    return Driver(f"no Stoker runs with the state directory {layout.root}: start it with `stoker up`")


def _error(reply: Reply) -> StokerError:
    body = reply.object() if reply.body[:1] == b"{" else {}
    error = body.get("error")
    problem = error if isinstance(error, dict) else {}
    message = str(problem.get("message") or f"the controller answered {reply.status}")
    if reply.status in (400, 422):
        raw = problem.get("faults")
        faults = (
            [msgspec.convert(f, _FaultLine) for f in cast("list[JsonObject]", raw)] if isinstance(raw, list) else []
        )
        return Invalid(*(f.fault() for f in faults)) if faults else Invalid(message)
    return _ERRORS.get(reply.status, Driver)(message)


class _FaultLine(msgspec.Struct, frozen=True):
    """One fault as the API writes it."""

    message: str
    file: str = ""
    line: int = 0
    field: str = ""
    hint: str = ""

    def fault(self) -> Fault:
        """Turn it back into ours."""
        return Fault(message=self.message, file=self.file, line=self.line, field=self.field, hint=self.hint)
