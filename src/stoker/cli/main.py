"""The command line of Stoker. Each group of commands lives in a file of its own."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from stoker import __version__
from stoker.base.errors import Invalid, NotFound, StokerError
from stoker.cli import chat, engines, keys, logs, machine, plan, resources, state, up, usage
from stoker.cli.checks import probe
from stoker.cli.clients import conformance, connect
from stoker.cli.explain import sessions
from stoker.cli.settings import settings

app = typer.Typer(
    name="stoker",
    help="Serve, meter and explain language models on your own machines.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def common(
    context: typer.Context,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where Stoker keeps its state (~/.stoker).")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the resources.")] = "",
) -> None:
    """Read the settings that all commands share."""
    context.obj = settings(state_dir, namespace)


@app.command()
def version() -> None:
    """Print the version."""
    print(f"stoker {__version__}")


for module in (up, resources, logs, chat, usage, sessions, machine, state, connect, conformance, probe):
    module.add(app)
app.add_typer(keys.app, name="key")
app.add_typer(engines.app, name="engine")
app.add_typer(plan.app, name="plan")
app.add_typer(plan.model_app, name="model")
engines.add(app)


def run() -> None:
    """Run a command and turn our errors into one clear line each and an exit code."""
    try:
        app()
    except StokerError as error:
        for line in str(error).splitlines():
            print(f"stoker: {line}", file=sys.stderr)
        sys.exit(2 if isinstance(error, Invalid | NotFound) else 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # a state directory that may not be read or written
        place = f"{error.filename}: " if error.filename else ""
        print(f"stoker: {place}{error.strerror or error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run()
