"""Sessions: how much of their prompts was cached, and which block broke the cache."""

from typing import Annotated

import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject
from stoker.base.units import parse_seconds
from stoker.cli import output
from stoker.cli.output import items
from stoker.cli.resources import client


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(sessions)


def sessions(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="The beginning of a session's name: explain it turn by turn.")] = "",
    *,
    since: Annotated[str, typer.Option(help="How far back the list goes: 24h, 30d.")] = "24h",
    limit: Annotated[int, typer.Option(help="How many sessions.", min=1)] = 30,
    form: Annotated[str, typer.Option("--output", "-o", help="table or json.")] = "table",
) -> None:
    """Show sessions and what their cache was worth; for one of them, what broke it, where, and at what cost."""
    if form not in ("table", "json"):
        raise Invalid(Fault(message=f"'{form}' is no output form", field="--output", hint="table or json"))
    if session:
        page = client(context).get(f"/v1/sessions/{session}")
    else:
        page = client(context).get("/v1/sessions", since=f"{clock.now() - parse_seconds(since):.3f}", limit=limit)
    if form == "json":
        output.data(page, "json")
    elif session:
        _explain(items(page, "items"))
    else:
        _list(items(page, "items"))


def _list(rows: list[JsonObject]) -> None:
    cells = [
        [
            str(row["session"]),
            str(row["last_at"]),
            str(row["caller"]),
            str(row["service"]),
            str(row["requests"]),
            _count(row["prompt_tokens"]),
            _percent(row["cached_fraction"]),
            str(row["broken"]),
            _count(row["again_tokens"]),
        ]
        for row in rows
    ]
    names = ["SESSION", "LAST", "CALLER", "SERVICE", "REQUESTS", "PROMPT", "CACHED", "BROKEN", "COMPUTED AGAIN"]
    output.table(names, cells)


def _explain(rows: list[JsonObject]) -> None:
    cells = [
        [
            str(row["at"]),
            str(row["turn"]),
            str(row["endpoint"]),
            _count(row["prompt_tokens"]),
            _count(row["cached_tokens"]),
            str(row["verdict"]),
            _place(row),
            _count(row["again_tokens"]),
        ]
        for row in rows
    ]
    output.table(["AT", "TURN", "REPLICA", "PROMPT", "CACHED", "CACHE", "FIRST DIFFERENCE", "COMPUTED AGAIN"], cells)
    for advice in dict.fromkeys(str(row["advice"]) for row in rows if row["advice"]):
        print(advice)


def _place(row: JsonObject) -> str:
    if row["block"] is None:
        return ""
    return f"block {row['block']} (bytes {_count(row['from_bytes'])}-{_count(row['to_bytes'])}, {row['where']})"


def _count(value: Json) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _percent(value: Json) -> str:
    return f"{value:.0%}" if isinstance(value, float | int) else ""
