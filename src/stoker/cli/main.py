"""The command line of Stoker. Each group of commands lives in a file of its own; only the one that is asked is read.

Reading all of them takes a quarter of a second, which is more than most commands need for what they do.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from stoker import __version__
from stoker.base.errors import Invalid, NotFound, StokerError
from stoker.cli.settings import settings

# Where each command lives; a module's ``add`` registers all of its commands.
_HOMES: Final = {
    "stoker.cli.up": ("up", "down"),
    "stoker.cli.resources": ("apply", "diff", "get", "describe", "delete", "events", "schema"),
    "stoker.cli.logs": ("logs",),
    "stoker.cli.chat": ("chat",),
    "stoker.cli.usage": ("usage",),
    "stoker.cli.explain.sessions": ("sessions",),
    "stoker.cli.machine": ("status", "models"),
    "stoker.cli.state": ("backup", "restore"),
    "stoker.cli.clients.connect": ("connect",),
    "stoker.cli.clients.conformance": ("conformance",),
    "stoker.cli.checks.probe": ("probe",),
    "stoker.cli.engines": ("engines",),
}
# Groups: the module and the name of its Typer there.
_GROUPS: Final = {
    "key": ("stoker.cli.keys", "app"),
    "engine": ("stoker.cli.engines", "app"),
    "plan": ("stoker.cli.plan", "app"),
    "model": ("stoker.cli.plan", "model_app"),
    "bench": ("stoker.cli.bench", "app"),
    "rehearse": ("stoker.cli.rehearse", "app"),
}
_WITH_VALUE: Final = ("--state-dir", "--namespace", "-n")  # options that stand before a command


def common(
    context: typer.Context,
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", help="Where Stoker keeps its state (~/.stoker).")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the resources.")] = "",
) -> None:
    """Read the settings that all commands share."""
    context.obj = settings(state_dir, namespace)


def version() -> None:
    """Print the version."""
    print(f"stoker {__version__}")


def build(command: str = "") -> typer.Typer:
    """Put the command line together: the home of one command alone, or everything where that is unknown."""
    app = typer.Typer(
        name="stoker",
        help="Serve, meter and explain language models on your own machines.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(common)
    app.command()(version)
    homes = [home for home, names in _HOMES.items() if command in names]
    everything = not homes and command not in (*_GROUPS, "version")
    for home in _HOMES if everything else homes:
        import_module(home).add(app)
    for name, (home, attribute) in _GROUPS.items():
        if everything or name == command:
            app.add_typer(getattr(import_module(home), attribute), name=name)
    return app


def named(words: Sequence[str]) -> str:
    """Find the command in a command line, or nothing."""
    words = list(words)
    while words:
        word = words.pop(0)
        if word in _WITH_VALUE:
            del words[:1]
        elif not word.startswith("-"):
            return word
        elif word in ("-h", "--help"):
            return ""
    return ""


def run() -> None:
    """Run a command and turn our errors into one clear line each and an exit code."""
    try:
        build(named(sys.argv[1:]))()
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
