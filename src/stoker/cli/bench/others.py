"""`stoker bench import`: what have other tools measured?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stoker.cli import output
from stoker.cli.bench import options

if TYPE_CHECKING:
    from stoker.bench.report.others import Other


def others(
    files: Annotated[list[Path], typer.Argument(help="Results of guidellm, aiperf or `vllm bench serve` (JSON).")],
    *,
    beside: Annotated[Path | None, typer.Option(help="The folder of a result of ours: its page is drawn anew.")] = None,
    form: options.Form = "",
) -> None:
    """Read results of other tools, and draw them beside ours. Their success rates are not taken over."""
    from stoker.bench.report import others as reading

    options.form(form)
    found = [reading.read(file) for file in files]
    if beside is not None:
        _draw(beside, found)
    if form:
        output.data(msgspec.to_builtins(found), form)
        return
    columns = ("RESULT", "LOAD", "REQUESTS/s", "TOK/s", "TTFT p50 ms", "p90 ms", "TPOT p50 ms")
    output.table(columns, reading.listing(found))


def _draw(folder: Path, found: "list[Other]") -> None:
    from stoker.bench import result as results
    from stoker.bench.report.page import page
    from stoker.drivers import files

    ours = results.read(folder)
    files.replace(folder / "report.html", page(ours, results.samples(folder, ours), others=found).encode(), mode=0o644)
    output.err.print(f"written: {folder / 'report.html'}")
