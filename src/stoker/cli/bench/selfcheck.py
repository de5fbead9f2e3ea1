"""`stoker bench selfcheck`: does this machine measure what is there?"""

import msgspec
import typer

from stoker.cli import output
from stoker.cli.bench import options


def selfcheck(form: options.Form = "") -> None:
    """Measure an engine whose truth is known, and tell how far off we are. Exit code 1 when a check fails."""
    from stoker.bench.selfcheck.play import selfcheck as play

    options.form(form)
    with output.err.status("starting the engine") as shown:
        found = list(play(shown.update))
    if form:
        output.data(msgspec.to_builtins(found), form)
    else:
        output.table(
            ("CHECK", "WHAT", "FOUND", "TARGET", "RESULT"),
            [(row.name, row.what, row.found, row.target, "ok" if row.ok else "FAILED") for row in found],
        )
    raise typer.Exit(0 if all(row.ok for row in found) else 1)
