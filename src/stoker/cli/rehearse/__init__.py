"""`stoker rehearse`: an engine without a model or a GPU, that takes as long as one with them."""

import typer

from stoker.cli.rehearse.engine import engine
from stoker.cli.rehearse.faults import faults

app = typer.Typer(help="Rehearse a deployment before a GPU hour is paid.", no_args_is_help=True)
app.command()(engine)
app.command()(faults)

__all__ = ["app"]
