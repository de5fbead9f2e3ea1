"""``stoker conformance``: what does an endpoint speak, ours or anybody's?"""

from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import typer

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.checks.conformance import suite
from stoker.checks.conformance.probe import State, Talk
from stoker.cli import output
from stoker.cli.output import err
from stoker.cli.settings import client_key


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(conformance)


def conformance(
    url: Annotated[
        str, typer.Argument(help="Where it listens, such as http://127.0.0.1:8080; a /v1 at the end is cut.")
    ],
    *,
    key: Annotated[str, typer.Option(help="The key; without it STOKER_API_KEY.")] = "",
    model: Annotated[str, typer.Option("--model", "-m", help="Which model; the first that it lists.")] = "",
    dialect: Annotated[list[str], typer.Option(help="Only chat, messages or responses; may be repeated.")] = [],  # noqa: B006
    timeout: Annotated[float, typer.Option(help="Seconds of silence after which a probe gives up.", min=1)] = 120.0,
    form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "",
) -> None:
    """Ask an endpoint what real clients ask, and tell what holds. Exit code 1 when a row fails."""
    probes = suite.chosen(dialect)
    talk = Talk(url=origin(url), key=key or client_key(), model=model, timeout=timeout)
    talk = replace(talk, model=suite.reach(talk))
    found = []
    with err.status(f"asking {talk.url} about {talk.model}") as shown:
        for row in suite.run(talk, probes, demanded=dialect):
            shown.update(f"{row.name}: {row.finding.state.value}")
            found.append(row)
    if form:
        output.data({"url": talk.url, "model": talk.model, "rows": [_json(row) for row in found]}, form)
    else:
        table(found)
    raise typer.Exit(1 if any(row.fails for row in found) else 0)


def origin(url: str) -> str:
    """Cut a URL down to where the paths begin. Raises Invalid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(Fault(message=f"'{url}' is no URL", field="URL", hint="such as http://127.0.0.1:8080"))
    return url.rstrip("/").removesuffix("/v1")


def table(found: list[suite.Row]) -> None:
    """Print the rows, the count of each state, and what would mend what failed."""
    output.table(
        ("ROW", "RESULT", "WHAT", "EVIDENCE"),
        [(r.name, r.finding.state.value, r.what, r.finding.evidence) for r in found],
    )
    counts = {state: sum(row.finding.state is state for row in found) for state in State}
    print("\n" + ", ".join(f"{number} {state.value}" for state, number in counts.items()))
    for row in found:
        if row.fails and row.finding.fix:
            print(f"{row.name}: {row.finding.fix}")


def _json(row: suite.Row) -> Json:
    finding = row.finding
    told: dict[str, Json] = {"name": row.name, "what": row.what, "result": finding.state.value}
    return {**told, "evidence": finding.evidence, "fix": finding.fix}
