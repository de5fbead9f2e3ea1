"""What is a probe, and how does it talk to the endpoint?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from stoker.base.errors import Driver
from stoker.base.json import Json, JsonObject
from stoker.drivers.request import Call, fetch

_SHOWN: Final = 160


class State(StrEnum):
    """What came out of a probe."""

    PASS = "pass"  # noqa: S105 - a word for a person
    FAIL = "fail"
    SKIP = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of the report. ``fix``: what to change where it failed."""

    state: State
    evidence: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """One answer. ``trouble``: why there is none, or why it is not whole."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    trouble: str = ""

    @property
    def value(self) -> Json:
        """The body as JSON; None when it is none."""
        try:
            return msgspec.json.decode(self.body)  # type: ignore[no-any-return]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    @property
    def shown(self) -> str:
        """Say in one short line what came."""
        if self.trouble:
            return self.trouble
        return " ".join(f"{self.status} {self.body[:_SHOWN].decode(errors='replace')}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A way to one endpoint. ``scheme``: which header carries the key."""

    url: str  # without a path
    key: str
    model: str
    timeout: float = 120.0

    def post(self, path: str, body: JsonObject | bytes, *, headers: Mapping[str, str] | None = None) -> Got:
        """Send a body."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self._send("POST", path, data, {"content-type": "application/json", **(headers or {})})

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, method: str = "GET") -> Got:
        """Read."""
        return self._send(method, path, b"", headers or {})

    def _send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Got:
        given = {name.lower(): value for name, value in headers.items()}
        if self.key and not {"authorization", "x-api-key"} & given.keys():
            given["authorization"] = f"Bearer {self.key}"
        call = Call(url=f"{self.url}{path}", method=method, headers=given, body=body, timeout=self.timeout)
        try:
            reply = fetch(call)
        except Driver as error:
            return Got(trouble=str(error))
        return Got(status=reply.status, headers=reply.headers, body=reply.body)


Run: TypeAlias = Callable[[Talk], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One thing that must hold. ``name`` begins with the dialect or surface that it asks about."""

    name: str
    what: str
    run: Run

    @property
    def surface(self) -> str:
        """The dialect or surface."""
        return self.name.partition(".")[0]


def passed(evidence: str = "") -> Finding:
    """Say that it holds."""
    return Finding(state=State.PASS, evidence=evidence)


def failed(evidence: str, fix: str = "") -> Finding:
    """Say that it does not hold."""
    return Finding(state=State.FAIL, evidence=evidence, fix=fix)


def skipped(why: str) -> Finding:
    """Say that it could not be found out."""
    return Finding(state=State.SKIP, evidence=why)


def judged(problems: Sequence[str], evidence: str = "", *, fix: str = "") -> Finding:
    """Fail with the first problem, or pass."""
    return failed(problems[0], fix) if problems else passed(evidence)


def at(value: Json, *path: str | int) -> Json:
    """Follow a path through objects and lists; None where it leads nowhere."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def rows(value: Json) -> list[JsonObject]:
    """Give the objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def words(value: Json) -> str:
    """Give a text, or the empty string."""
    return value if isinstance(value, str) else ""


def count(value: Json) -> int:
    """Give a whole number, or -1."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
