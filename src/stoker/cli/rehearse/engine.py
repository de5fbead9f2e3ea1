"""`stoker rehearse engine`: start the simulated engine in the foreground."""

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from stoker.base.errors import Fault, Invalid
from stoker.cli.output import err
from stoker.cli.settings import Settings

if TYPE_CHECKING:
    from stoker.rehearse.batch.rig import Rig

_NAMES: Final = ("vllm", "vllm-old", "sglang")


def engine(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A model as `stoker plan` takes it; with --rig none is needed.")] = "",
    *,
    gpu: Annotated[str, typer.Option(help="The card, such as h200.")] = "",
    count: Annotated[int, typer.Option(help="Cards, as tensor parallel ranks.", min=1)] = 1,
    like: Annotated[str, typer.Option("--engine", help="Whose times: vllm[@VERSION], sglang, tensorrt-llm.")] = "vllm",
    length: Annotated[int, typer.Option("--context", help="Tokens of a request (the model's limit).", min=0)] = 0,
    sequences: Annotated[int, typer.Option(help="Sequences at once (the engine's default).", min=0)] = 0,
    names: Annotated[str, typer.Option(help="Metric names and log lines of: vllm, vllm-old or sglang.")] = "",
    rig: Annotated[Path | None, typer.Option(help="A file with sizes and step times instead of a model.")] = None,
    speed: Annotated[float, typer.Option(help="So many of its seconds pass in one of ours.", min=0.001)] = 1.0,
    port: Annotated[int, typer.Option(help="Where it listens; 0: any free port.", min=0, max=65535)] = 8000,
    script: Annotated[
        Path | None, typer.Option(help="What it says and its faults; read again when it changes.")
    ] = None,
    served: Annotated[str, typer.Option("--served-model-name", help="What it calls itself.")] = "rehearsal",
    write: Annotated[Path | None, typer.Option(help="Only write the rig to this file.")] = None,
) -> None:
    """Start an engine that batches, caches, preempts and takes its time as a real one, without a GPU."""
    made = _rig(
        context.obj, model, rig, gpu=gpu, count=count, like=like, length=length, sequences=sequences, names=names
    )
    data = msgspec.json.format(msgspec.json.encode(made), indent=2)
    if write is not None:
        write.write_bytes(data + b"\n")
        print(f"{write}: {made.source or 'a rig'}; start it with `stoker rehearse engine --rig {write}`")
        return
    _check(script)
    with tempfile.NamedTemporaryFile("wb", suffix=".rig.json", delete=False) as file:
        file.write(data)
    argv = [sys.executable, "-m", "stoker.rehearse", "--port", str(port), "--model", served, "--rig", file.name]
    argv += ["--speed", str(speed), *(["--script", str(script)] if script is not None else [])]
    err.print(
        f"{made.source or 'own step times'}: {made.kv_cache_tokens:,} tokens of KV cache, {made.sequences} sequences,"
        f" {made.batch_tokens} tokens a step; metrics on /metrics, cards on /dcgm/metrics; Ctrl-C ends it",
        markup=False,
    )
    os.execv(sys.executable, argv)  # noqa: S606 -- it takes our place: signals reach it, and nobody waits in between


def _rig(
    settings: Settings, model: str, rig: Path | None, *, gpu: str, count: int, like: str, length: int, sequences: int,
    names: str,
) -> "Rig":  # fmt: skip
    from stoker.rehearse.batch import rig as rigs

    if names and names not in _NAMES:
        raise Invalid(
            Fault(message=f"there are no names of '{names}'", field="--names", hint=f"one of {', '.join(_NAMES)}")
        )
    if rig is not None:
        if model or gpu:
            raise Invalid(Fault(message="give a rig or a model with its card, not both", field="--rig"))
        found = rigs.load(rig)
        return msgspec.structs.replace(found, names=names) if names else found
    if not model or not gpu:
        hint = "such as `stoker rehearse engine OWNER/MODEL --gpu h200 --count 8`, or --rig FILE"
        raise Invalid(Fault(message="say what is rehearsed: a model and a card", field="MODEL, --gpu", hint=hint))
    return _planned(settings, model, gpu=gpu, count=count, like=like, length=length, sequences=sequences, names=names)


def _planned(
    settings: Settings, model: str, *, gpu: str, count: int, like: str, length: int, sequences: int, names: str
) -> "Rig":
    from stoker.cli.plan import cards, source
    from stoker.drivers import figures
    from stoker.predict import fits, overhead
    from stoker.predict.roles import Split
    from stoker.rehearse.batch import planned

    found = source.find(model, settings)
    name, _, version = like.partition("@")
    asked = fits.Ask(
        parts=found.parts,
        shape=found.shape,
        gpu=cards.find(gpu),
        split=Split(tensor=count),
        load=overhead.Load(sequences=sequences),
        engine=name,
        version=version,
        context_tokens=length,
        quantization=found.quantization,
    )
    plan = fits.plan(asked, cards.coefficients(settings))
    shown = names or ("sglang" if name == "sglang" else "vllm")
    return planned.rig(plan, figures.speed(), names=shown, fetched=Path(model).expanduser().exists())  # type: ignore[arg-type]


def _check(script: Path | None) -> None:
    """A script that is wrong is told before the start, not while it runs."""
    from stoker.rehearse.script import parse

    if script is None:
        return
    try:
        parse(script.read_bytes())
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(script))) from error
    except Invalid as error:
        raise Invalid(Fault(message=str(error), file=str(script))) from error
