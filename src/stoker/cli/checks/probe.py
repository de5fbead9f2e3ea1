"""``stoker probe``: is the door closed to everybody who has no business here?"""

import contextlib
import secrets
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import typer

from stoker.base.errors import Fault, Invalid, NotFound, StokerError
from stoker.base.json import Json, JsonObject
from stoker.checks.probe import ask
from stoker.checks.probe.ask import Door, Row, Tally
from stoker.checks.probe.matrix import Who
from stoker.cli import output
from stoker.cli.client import Client
from stoker.cli.output import err, items, text
from stoker.cli.resources import client
from stoker.cli.settings import Settings

_SPARE = 600.0  # seconds that a key lives longer than it is needed: it ends by itself if we cannot remove it


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(probe)


def probe(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="Where it listens; the Stoker of this machine.")] = "",
    *,
    key: Annotated[str, typer.Option(help="A good key: it must reach its models and nothing inside.")] = "",
    other_key: Annotated[str, typer.Option(help="A key whose caller may not use the model.")] = "",
    expired_key: Annotated[str, typer.Option(help="A key that has expired.")] = "",
    revoked_key: Annotated[str, typer.Option(help="A key that was revoked.")] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="A model of others; the first that is served.")] = "",
    origin: Annotated[str, typer.Option(help="An origin that the gateway allows by its cors block.")] = "",
    opened: Annotated[list[str], typer.Option("--open", help="A path that a rule opens, as /metrics.")] = [],  # noqa: B006
    ca: Annotated[str, typer.Option(help="Certificates (PEM) to believe, of a private authority.")] = "",
    loop: Annotated[float, typer.Option(help="Ask for so many seconds, as while something is reloaded.")] = 0.0,
    form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "",
) -> None:
    """Knock with every sort of credential at every path. Exit code 1, and the offending rows, when one is not closed.

    Without keys, and for the Stoker of this machine, temporary callers are made and removed again.
    """
    keys = {Who.GOOD: key, Who.OTHER: other_key, Who.EXPIRED: expired_key, Who.REVOKED: revoked_key}
    _mind_signals()
    with contextlib.ExitStack() as stack:
        if any(keys.values()):
            door = Door(url=_origin(url), keys=keys, model=model)
        else:
            door = stack.enter_context(_local(context, url, model=model, life=loop + _SPARE))
        door = replace(door, origin=origin, opened=tuple(opened), cert_file=ca or door.cert_file)
        tally, rows = Tally(), []
        with err.status(f"knocking at {door.url}"):
            if loop:
                tally = ask.during(door, loop)
            else:
                rows = list(ask.once(door, tally))
                tally.rounds, tally.offending = 1, [row for row in rows if not row.holds]
    _tell(door, tally, rows, form=form)
    raise typer.Exit(1 if tally.offending else 0)


@contextlib.contextmanager
def _local(context: typer.Context, url: str, *, model: str, life: float) -> Iterator[Door]:
    """Make callers for the Stoker of this machine and remove them, whatever happens. Raises Invalid elsewhere."""
    api = client(context)
    try:
        status = api.get("/v1/status")
        live = text(status, "endpoint").removesuffix("/v1")
    except StokerError:
        if not url:
            raise
        status, live = {}, ""
    if not live or (url and urlsplit(_origin(url)).netloc != urlsplit(live).netloc):
        err.print("[yellow]note:[/yellow] it is not the Stoker of this machine: rows that need a key are left out")
        yield Door(url=_origin(url), keys={}, model=model)
        return
    settings: Settings = context.obj
    name = f"probe-{secrets.token_hex(4)}"
    try:
        keys = _make_keys(api, name, settings.namespace, life=life)
        names = [text(s, "model") for s in items(status, "services") if s.get("routable")]
        yield Door(
            url=_origin(url) if url else live,
            keys=keys,
            model=model or next(iter(names), ""),
            cert_file=text(status, "certificate"),
        )
    finally:
        for caller in (name, f"{name}-other"):
            with contextlib.suppress(NotFound):
                api.delete(f"/v1/resources/Caller/default/{caller}")


def _make_keys(api: Client, name: str, namespace: str, *, life: float) -> dict[Who, str]:
    def made(caller: str, seconds: float, *services: str) -> JsonObject:
        asked: JsonObject = {
            "caller": caller,
            "namespace": namespace,
            "lifeSeconds": seconds,
            "services": list(services),
        }
        return api.post("/v1/keys", asked)

    good, expired, revoked = made(name, life), made(name, 0.001), made(name, life)
    other = made(f"{name}-other", life, f"{namespace}/nothing-of-that-name")
    api.post(f"/v1/keys/{text(revoked, 'id')}/revoke", {}, timeout=30)
    found = {Who.GOOD: good, Who.EXPIRED: expired, Who.REVOKED: revoked, Who.OTHER: other}
    return {who: text(answer, "key") for who, answer in found.items()}


def _origin(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(Fault(message=f"'{url}' is no URL", field="URL", hint="such as http://127.0.0.1:8080"))
    return url.rstrip("/").removesuffix("/v1")


def _mind_signals() -> None:
    """Take `kill` as Ctrl-C: the temporary callers must go."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def _tell(door: Door, tally: Tally, rows: list[Row], *, form: str) -> None:
    if form:
        told: dict[str, Json] = {
            "url": door.url,
            "rounds": tally.rounds,
            "rows": tally.rows,
            "unanswered": tally.unanswered,
        }
        output.data({**told, "offending": [_json(r) for r in tally.offending], "all": [_json(r) for r in rows]}, form)
        return
    if tally.offending:
        columns = ("WHO", "METHOD", "PATH", "EXPECTED", "FOUND")
        shown = list(dict.fromkeys((r.who.value, r.method, r.path, r.expected, r.fault) for r in tally.offending))
        output.table(columns, shown)
    left_out = [who.value for who in (Who.GOOD, Who.OTHER, Who.EXPIRED, Who.REVOKED) if not door.keys.get(who)]
    print(f"{tally.rows - len(tally.offending)} of {tally.rows} rows hold, in {tally.rounds} round(s)")
    if tally.unanswered:
        print(f"{tally.unanswered} questions had to be asked again: nobody answered them at first")
    if left_out:
        print(f"left out, for want of a key: {', '.join(left_out)}")


def _json(row: Row) -> Json:
    return {
        "who": row.who.value,
        "method": row.method,
        "path": row.path,
        "expected": row.expected,
        "found": row.fault,
        "holds": row.holds,
    }
