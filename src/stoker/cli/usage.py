"""Usage: who used how many tokens of which model, and how the requests ended."""

import csv
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.base.units import parse_seconds
from stoker.cli import output
from stoker.cli.output import items
from stoker.cli.resources import client
from stoker.drivers import files

_LIMIT: Final = 100
_MOST: Final = 1_000_000  # records of a trace, unless fewer are asked for
_SHOWN = (
    "at",
    "request_id",
    "caller",
    "model",
    "status",
    "outcome",
    "detail",
    "prompt_tokens",
    "output_tokens",
    "first_visible_token_seconds",
    "total_seconds",
)


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(usage)


def usage(
    context: typer.Context,
    action: Annotated[str, typer.Argument(help="Nothing to show it, export to write a trace.")] = "",
    *,
    by: Annotated[str, typer.Option(help="caller, model, service, outcome; several with commas.")] = "caller,model",
    since: Annotated[str, typer.Option(help="How far back: 24h, 30d.")] = "30d",
    form: Annotated[str, typer.Option("--output", "-o", help="table, csv or json.")] = "table",
    records: Annotated[bool, typer.Option("--records", help="One line per request instead of sums.")] = False,
    limit: Annotated[int, typer.Option(help="How many records.", min=1)] = _LIMIT,
    trace: Annotated[
        Path | None, typer.Option(help="With export: the file, JSON lines for `bench run --trace`.")
    ] = None,
) -> None:
    """Show what was used, or export it as a trace that `stoker bench` can play again."""
    if action or trace is not None:
        _export(context, action, trace, since=since, limit=limit if limit != _LIMIT else _MOST)
        return
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
    if records and form == "table":
        names = [name for name in _SHOWN if name in names]  # what fits a screen; csv and json have every field
    if form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows([row.get(name) for name in names] for row in rows)
        return
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    output.table([name.upper().replace("_", " ") for name in names], cells)


def _export(context: typer.Context, action: str, trace: Path | None, *, since: str, limit: int) -> None:
    from stoker.predict.traffic import recorded

    if action != "export":
        raise Invalid(
            Fault(message=f"'{action}' is nothing to do with usage", field="ACTION", hint="export, or nothing")
        )
    if trace is None:
        raise Invalid(Fault(message="name the file to write", field="--trace", hint="such as --trace week.jsonl"))
    page = client(context).get(
        "/v1/usage", by="caller", since=f"{clock.now() - parse_seconds(since):.3f}", records=True, limit=limit
    )
    rows = recorded.rows(items(page, "items"))
    if not rows:
        raise Invalid(Fault(message=f"no request of the last {since} had a prompt and an answer", field="--since"))
    files.replace(trace, b"".join(msgspec.json.encode(row) + b"\n" for row in rows), mode=0o600)
    sessions = len({str(row["session"]) for row in rows})
    print(
        f"{trace}: {len(rows)} requests of {sessions} sessions; play them with `stoker bench run URL --trace {trace}`"
    )


def _cell(value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return "" if value is None else str(value)
