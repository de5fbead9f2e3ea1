"""Backup and restore of the state."""

from pathlib import Path
from typing import Annotated

import typer

from stoker.base.errors import Conflict
from stoker.cli.resources import client
from stoker.cli.settings import Settings
from stoker.drivers import spawn


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(backup)
    app.command()(restore)


def backup(context: typer.Context, file: Annotated[Path, typer.Argument(help="Where the backup goes.")]) -> None:
    """Write resources, events and key hashes to one file, while Stoker runs. Usage records are not in it."""
    client(context).post("/v1/backup", {"path": str(file.absolute())}, timeout=300)
    print(f"backup written to {file}")


def restore(context: typer.Context, file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)]) -> None:
    """Put a backup in the place of the present state. Stoker must be stopped; the present state is kept beside it."""
    from stoker.drivers.store import database

    settings: Settings = context.obj
    background = spawn.find(settings.layout)
    if background is not None and background.alive:
        raise Conflict("Stoker runs: `stoker down` first")
    settings.layout.make()
    kept = database.restore(file, settings.layout.database)
    print(f"restored from {file}" + (f"; the state before it is kept as {kept}" if kept else ""))
