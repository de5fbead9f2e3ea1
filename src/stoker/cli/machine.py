"""This machine: status of what runs, models that can be had."""

from typing import Annotated

import typer

from stoker.base.json import JsonObject
from stoker.base.units import show_bytes
from stoker.cli import output
from stoker.cli.output import err, items, out, text
from stoker.cli.resources import client


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(status)
    app.command()(models)


def status(
    context: typer.Context, form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = ""
) -> None:
    """Show in one screen what runs, what does not, and what to do about it."""
    answer = client(context).get("/v1/status")
    if form:
        output.data(answer, form)
        return
    show(answer)


def show(answer: JsonObject) -> None:
    """Print a status for a person."""
    out.print(f"endpoint   {text(answer, 'endpoint')}")
    gateways = items(answer, "gateways")
    fresh = [g for g in gateways if g.get("fresh")]
    busy = sum(int(text(g, "inFlight") or 0) for g in fresh)
    out.print(f"gateway    {len(fresh)} of {len(gateways)} workers answer, {busy} requests in flight")
    machine = answer.get("machine")
    if isinstance(machine, dict):
        out.print(
            f"machine    {text(machine, 'cores')} cores, {text(machine, 'memory')}, {text(machine, 'accelerators')}"
        )
    print()
    rows = [
        (text(s, "model"), "yes" if s.get("routable") else "no", text(s, "endpoints"), text(s, "reason"))
        for s in items(answer, "services")
    ]
    output.table(("MODEL", "ROUTABLE", "ENDPOINTS", "REASON"), rows)
    print()
    states = [
        (
            text(r, "name"),
            text(r, "engine"),
            text(r, "ready"),
            text(r, "reason"),
            text(r, "restarts"),
            text(r, "message"),
        )
        for r in items(answer, "replicas")
    ]
    output.table(("REPLICA", "ENGINE", "READY", "REASON", "RESTARTS", "MESSAGE"), states)
    for warning in answer.get("warnings") or []:  # type: ignore[union-attr]
        err.print(f"[yellow]warning:[/yellow] {warning}")


def models(
    context: typer.Context, form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = ""
) -> None:
    """List the models that can be had without a hub, and those that lie here already."""
    from stoker.cli.settings import Settings
    from stoker.drivers import models as catalogue

    settings: Settings = context.obj
    found = catalogue.listing(settings.layout.models)
    if form:
        output.data([m.as_json() for m in found], form)
        return
    rows = [(m.name, m.source, show_bytes(m.size_bytes), m.licence, "yes" if m.cached else "no", m.note) for m in found]
    output.table(("MODEL", "FROM", "SIZE", "LICENCE", "HERE", "NOTE"), rows)
