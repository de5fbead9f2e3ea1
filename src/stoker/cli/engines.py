"""Engines: what they are for, which versions are proven, and engines that the user brings."""

from pathlib import Path
from typing import Annotated

import typer

from stoker.base.errors import Fault, Invalid
from stoker.cli import output
from stoker.cli.output import items, text
from stoker.cli.resources import client

app = typer.Typer(help="Engines that you bring yourself.", no_args_is_help=True)


def add(root: typer.Typer) -> None:
    """Add the commands of this file that stand alone."""
    root.command()(engines)


def engines(form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "") -> None:
    """List the engines: what each is for, the versions proven here, and what is unproven."""
    from stoker.engines.registry import ENGINES

    rows = []
    for name, engine in sorted(ENGINES.items()):
        c = engine.capabilities
        able = [word for word in ("tools", "reasoning", "embeddings", "lora", "prefix_cache") if getattr(c, word)]
        rows.append(
            (name, ", ".join(c.proven) or "none", c.unproven, ", ".join(able), ", ".join(c.dialects), c.purpose)
        )
    if form:
        output.data(
            [
                {
                    "name": r[0],
                    "proven": r[1],
                    "unproven": r[2],
                    "capabilities": r[3],
                    "dialects": r[4],
                    "purpose": r[5],
                }
                for r in rows
            ],
            form,
        )
        return
    output.table(("ENGINE", "PROVEN HERE", "UNPROVEN", "CAN", "DIALECTS", "FOR"), rows)


@app.command("add")
def add_engine(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="vllm, sglang, tensorrt-llm, llama.cpp, …")],
    *,
    python: Annotated[Path | None, typer.Option(help="The Python of the environment that has the engine.")] = None,
    path: Annotated[Path | None, typer.Option(help="The engine's own program, such as llama-server.")] = None,
) -> None:
    """Register an engine of yours: asks its version and keeps a digest of its program."""
    if (python is None) == (path is None):
        raise Invalid(Fault(message="say where the engine is", hint="--python PATH or --path PATH"))
    program = python or path
    kind = "python" if python else "command"
    answer = client(context).post("/v1/engines", {"name": name, "kind": kind, "path": str(program)}, timeout=180)
    print(f"{name} {text(answer, 'version')} registered; use it with runtime: {{kind: {kind}, path: {program}}}")


@app.command("list")
def list_engines(context: typer.Context) -> None:
    """List the engines that were registered."""
    page = client(context).get("/v1/engines")
    output.table(
        ("ENGINE", "VERSION", "KIND", "PATH", "DIGEST"),
        [
            (text(e, "name"), text(e, "version"), text(e, "kind"), text(e, "path"), text(e, "digest")[:12])
            for e in items(page, "items")
        ],
    )
