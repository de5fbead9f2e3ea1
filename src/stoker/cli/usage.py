"""Usage: who used how many tokens of which model, and how the requests ended."""

import csv
import sys
from typing import Annotated

import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid
from stoker.base.units import parse_seconds
from stoker.cli import output
from stoker.cli.output import items, text
from stoker.cli.resources import client


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(usage)


def usage(
    context: typer.Context,
    by: Annotated[str, typer.Option(help="caller, model, service, outcome; several with commas.")] = "caller,model",
    *,
    since: Annotated[str, typer.Option(help="How far back: 24h, 30d.")] = "30d",
    form: Annotated[str, typer.Option("--output", "-o", help="table, csv or json.")] = "table",
    records: Annotated[bool, typer.Option("--records", help="One line per request instead of sums.")] = False,
    limit: Annotated[int, typer.Option(help="How many records.")] = 100,
) -> None:
    """Show what was used."""
    if form not in ("table", "csv", "json"):
        raise Invalid(Fault(message=f"'{form}' is no output form", field="--output", hint="table, csv or json"))
    page = client(context).get(
        "/v1/usage", by=by, since=f"{clock.now() - parse_seconds(since):.3f}", records=records, limit=limit
    )
    rows = items(page, "items")
    if form == "json":
        output.data(page, "json")
        return
    names = list(rows[0]) if rows else [*by.split(","), "requests"]
    cells = [[text(row, name) for name in names] for row in rows]
    if form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows(cells)
        return
    output.table([name.upper().replace("_", " ") for name in names], cells)
