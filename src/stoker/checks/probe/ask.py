"""Ask for the whole matrix, once or for a while, and tell each row that is not as it must be."""

import base64
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.checks.probe.matrix import Answer, Path, Sort, Who, expected, fault, paths
from stoker.drivers.request import Call, fetch

FOREIGN: Final = "https://elsewhere.invalid"
_TRIES: Final = 4
_REST: Final = 0.001  # seconds: whatever else runs here wants its turn
_FORGED_PROBE: Final = {"x-stoker-probe": "e1;e1-1;9999999999;00"}
# Everything by which some proxy or engine believes to know who asks.
_LIES: Final = {
    "x-stoker-caller": "admin",
    "x-forwarded-user": "admin",
    "x-forwarded-for": "127.0.0.1",
    "forwarded": "for=127.0.0.1",
    "x-remote-user": "admin",
    "x-authenticated-user": "admin",
    "x-internal": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where to knock, with which keys; a sort of asker whose key is not there is left out."""

    url: str
    keys: Mapping[Who, str]
    model: str = ""
    origin: str = ""  # one that the gateway is meant to allow
    opened: tuple[str, ...] = ()
    cert_file: str = ""
    timeout: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question and what came of it."""

    who: Who
    method: str
    path: str
    expected: str
    fault: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is as it must be."""
        return not self.fault


@dataclass(slots=True)
class Tally:
    """What a while of asking came to."""

    rounds: int = 0
    rows: int = 0
    unanswered: int = 0  # questions that were asked again: a worker was replaced meanwhile
    offending: list[Row] = field(default_factory=list)


def once(door: Door, tally: Tally | None = None) -> Iterator[Row]:
    """Ask for everything once. A question that nobody answers is asked again: it says nothing about the door."""
    tally = tally if tally is not None else Tally()
    for path in paths(door.opened):
        for who in Who:
            credentials = _credentials(who, door.keys)
            if credentials is None:
                continue
            for headers, origin in _origins(path, credentials, door):
                want = expected(who, path, origin=origin, allowed=origin == door.origin != "")
                if want is None or (want.shows and not door.model):
                    continue
                wrong = _ask(door, path, headers, tally)
                told = wrong if isinstance(wrong, str) else fault(want, path, wrong, model=door.model)
                tally.rows += 1
                yield Row(who=who, method=path.method, path=path.path, expected=str(want), fault=told)


def during(door: Door, seconds: float) -> Tally:
    """Ask again and again; stops at the end of the first round with an offending row."""
    tally, until = Tally(), clock.mono() + seconds
    while not tally.offending and (clock.mono() < until or not tally.rounds):
        tally.offending += [row for row in once(door, tally) if not row.holds]
        tally.rounds += 1
    return tally


def unsigned() -> str:
    """Write a token that says everything and is signed by nobody."""
    claims = {"iss": "https://issuer.invalid", "aud": "stoker", "sub": "admin", "exp": clock.now() + 3600}
    parts = (msgspec.json.encode(part) for part in ({"alg": "none", "typ": "JWT"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def _credentials(who: Who, keys: Mapping[Who, str]) -> Sequence[dict[str, str]] | None:
    """Write the headers of a sort of asker, once for each header that clients use; None: there is no such key."""
    if who is Who.MISSING:
        return ({},)
    if who is Who.FORGED:
        return (_LIES, _FORGED_PROBE)
    made = {Who.GARBAGE: f"sk-{secrets.token_urlsafe(24)}", Who.UNSIGNED: unsigned()}
    key = made.get(who) or keys.get(Who.OTHER if who is Who.LIAR else who, "")
    if not key:
        return None
    forged = _LIES if who is Who.LIAR else {}
    return ({"authorization": f"Bearer {key}", **forged}, {"x-api-key": key, **forged})


def _origins(path: Path, credentials: Sequence[dict[str, str]], door: Door) -> Iterator[tuple[dict[str, str], str]]:
    if path.sort is not Sort.PREFLIGHT:
        for headers in credentials:
            yield headers, ""
        return
    for origin in filter(None, (door.origin, FOREIGN)):
        asked = {"origin": origin, "access-control-request-method": "POST"}
        yield {**asked, "access-control-request-headers": "authorization"}, origin


def _ask(door: Door, path: Path, headers: Mapping[str, str], tally: Tally) -> Answer | str:
    model = door.model or "model"
    body = path.body.replace("MODEL", model)
    call = Call(
        url=door.url + path.path.replace("MODEL", model),
        method=path.method,
        # Closed by the other side, a connection leaves no port of ours in TIME_WAIT: a loop would use them all up.
        headers={**headers, "connection": "close", **({"content-type": "application/json"} if body else {})},
        body=body.encode(),
        timeout=door.timeout,
        trusted_cert_file=door.cert_file,
    )
    why = ""
    for _ in range(_TRIES):
        clock.sleep(_REST)
        try:
            reply = fetch(call)
        except Driver as error:
            why = str(error)
            tally.unanswered += 1
            clock.sleep(0.1)
        else:
            return Answer(status=reply.status, headers=dict(reply.headers), body=reply.body)
    return f"no answer: {why}"
