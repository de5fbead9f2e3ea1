"""`stoker bench`: what can an endpoint take?"""

import typer

from stoker.cli.bench import run
from stoker.cli.bench.checks import checks
from stoker.cli.bench.compare import compare
from stoker.cli.bench.labs import app as labs
from stoker.cli.bench.others import others
from stoker.cli.bench.ramp import ramp
from stoker.cli.bench.selfcheck import selfcheck

app = typer.Typer(help="Load an endpoint, and say what it can take and how sure that is.", no_args_is_help=True)
app.command()(run.run)
app.command()(ramp)
app.command()(compare)
app.command()(selfcheck)
app.command()(checks)
app.add_typer(labs, name="labs")
app.command("import")(others)

__all__ = ["app"]
