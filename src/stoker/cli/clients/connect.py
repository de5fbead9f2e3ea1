"""``stoker connect``: tell a client where the models are, write it into its own file, and try it out."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stoker.base import clock
from stoker.base.errors import Conflict, Driver, Fault, Invalid
from stoker.base.json import JsonObject
from stoker.checks.clients.base import Client as Known
from stoker.checks.clients.base import Service, Setup
from stoker.checks.clients.known import known
from stoker.checks.clients.merge import merged
from stoker.checks.clients.turn import check as turn
from stoker.cli.client import Client
from stoker.cli.clients.conformance import table
from stoker.cli.clients.live import live
from stoker.cli.output import err, text
from stoker.cli.resources import client as connected
from stoker.cli.settings import Settings, client_folder, client_key
from stoker.drivers import files


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(connect)


def connect(
    context: typer.Context,
    client: Annotated[str, typer.Argument(help="claude-code, codex, opencode, openai or anthropic.")],
    *,
    model: Annotated[str, typer.Option("--model", "-m", help="Which model; the only one if there is one.")] = "",
    auxiliary: Annotated[str, typer.Option(help="The model for titles and summaries; the same one.")] = "",
    write: Annotated[bool, typer.Option("--write", help="Write it into the client's file; a backup is kept.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Try it: one turn with tools in its own requests.")] = False,
    key: Annotated[str, typer.Option(help="A key to write; without it only the place for one is.")] = "",
    caller: Annotated[str, typer.Option(help="Make a new key of this Caller, and write that.")] = "",
    file: Annotated[Path | None, typer.Option(help="Another file than the client's own.")] = None,
) -> None:
    """Print how a client is set up for the models that run here; write it or check it when asked to."""
    if key and caller:
        raise Invalid(Fault(message="give a key or make one, not both", field="--caller"))
    settings: Settings = context.obj
    found, api = known(client), connected(context)
    service = live(api, settings.layout).service(model, auxiliary)
    service = replace(service, key=_made(api, caller, settings) if caller else key)
    if check:
        raise typer.Exit(_check(found, service, api))
    setup = found.setup(service)
    place = file or client_folder(*found.home) / setup.file if found.home[1] else file or Path(setup.file)
    if write:
        _write(setup, place)
    else:
        print(shown(setup, place))
    for note in setup.notes:
        err.print(f"note: {note}")


def _made(api: Client, caller: str, settings: Settings) -> str:
    return _key(api, {"caller": caller, "namespace": settings.namespace, "lifeSeconds": 90 * 86400, "wait": True})


def _key(api: Client, asked: JsonObject) -> str:
    return text(api.post("/v1/keys", asked, timeout=30), "key")


def _check(client: Known, service: Service, api: Client) -> int:
    """Try the set-up with the key that was given, or one that lives five minutes."""
    key = service.key or client_key()
    if not key:
        key = _key(api, {"caller": "chat", "namespace": "default", "lifeSeconds": 300, "wait": True})
    found = []
    with err.status(f"one turn as {client.name}") as seen:
        for row in turn(client, replace(service, key=key)):
            seen.update(f"one turn as {client.name}: {row.name} {row.finding.state.value}")
            found.append(row)
    table(found)
    return 1 if any(row.fails for row in found) else 0


def shown(setup: Setup, place: Path) -> str:
    """Write a set-up for a person: what goes into the file, and the same for one shell."""
    lines = [f"# {place}", merged(setup, "", file=str(place)).rstrip("\n")]
    if setup.env:
        lines += ["", "# in the shell"]
        lines += [f"export {name}={_quoted(value)}" for name, value in setup.env.items()]
    return "\n".join(lines)


def _quoted(value: str) -> str:
    return f'"{value}"' if value.startswith("$") else shlex.quote(value)


def _write(setup: Setup, place: Path) -> None:
    """Merge into the client's file. What was there is kept beside it; a file with a key in it is for its owner only."""
    target = place.resolve()  # a link of a dotfile manager stays one
    before = files.read(target)
    try:
        old = (before or b"").decode()
    except UnicodeDecodeError as error:
        raise Invalid(Fault(message="it is no text, so nothing was written", file=str(place))) from error
    new = merged(setup, old, file=str(place))
    if new == old:
        print(f"{place}: nothing to change")
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o600 if setup.secret or before is None else target.stat().st_mode & 0o777
    except OSError as error:
        raise Driver(f"cannot write {place}: {error.strerror or error}") from error
    backup = _backup(target, before) if before is not None else None
    if files.read(target) != before:
        raise Conflict(f"{place} was changed in this moment: nothing was written, try again")
    files.replace(target, new.encode(), mode=mode)
    print(f"{place}: written" + (f"; what was there is in {backup.name}" if backup else ""))


def _backup(target: Path, before: bytes) -> Path:
    """Keep what was there, under a name that is not taken."""
    at = int(clock.now())
    backup = target.with_name(f"{target.name}.before-stoker-{at}")
    while backup.exists():
        at += 1
        backup = target.with_name(f"{target.name}.before-stoker-{at}")
    files.replace(backup, before, mode=0o600)
    return backup
