"""Logs of engines."""

from typing import Annotated

import typer

from stoker.cli.resources import client
from stoker.cli.settings import Settings


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(logs)


def logs(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A ModelReplica, or a ModelDeployment with one replica.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing as it grows.")] = False,
    previous: Annotated[bool, typer.Option("--previous", help="The attempt before the present one.")] = False,
    tail: Annotated[int, typer.Option(help="Only the last lines; 0 for all.", min=0)] = 0,
) -> None:
    """Print what an engine wrote, per attempt."""
    settings: Settings = context.obj
    path = f"/v1/logs/{settings.namespace}/{name}"
    for line in client(context).lines(path, follow=follow, previous=previous, tail=tail):
        print(line, flush=follow)
