"""Does it fit, for how many, and with which flags? `stoker plan`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from stoker.base.errors import Fault, Invalid
from stoker.cli.plan import cards
from stoker.cli.plan import check as checking
from stoker.cli.plan import judge as judging
from stoker.cli.plan import search as searching
from stoker.cli.settings import Settings

if TYPE_CHECKING:
    from stoker.drivers.weights import Survey
    from stoker.predict.fits import Ask, Plan
    from stoker.predict.roles import Split


class _WithDefault(TyperGroup):
    """`stoker plan MODEL …` is `stoker plan model MODEL …`, and with --for `stoker plan search MODEL …`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # its base is private
        """Put the default command before what is neither a command nor a call for help."""
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            searched = any(word == "--for" or word.startswith("--for=") for word in args)
            args = ["search" if searched else "model", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_WithDefault, help="What fits, for how many, at which setting.", no_args_is_help=True)

app.command()(judging.judge)
app.command()(judging.fit)
app.command()(searching.search)
app.command()(checking.check)

_MODEL = "A .gguf file, a folder, REPO[@REVISION], or a name of `stoker models`."


@app.command("model")
def plan_model(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help=_MODEL)],
    *,
    gpu: Annotated[str, typer.Option(help="The card, such as h100 or l40s.")],
    count: Annotated[int, typer.Option(help="Cards; they become tensor parallel ranks unless told otherwise.")] = 0,
    tp: Annotated[int, typer.Option(help="Tensor parallel ranks.")] = 0,
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1,
    dp: Annotated[int, typer.Option(help="Data parallel ranks.")] = 1,
    ep: Annotated[bool, typer.Option("--ep", help="Whole experts on each rank instead of parts of all.")] = False,
    engine: Annotated[str, typer.Option(help="ENGINE[@VERSION]: vllm, sglang, tensorrt-llm, llama.cpp.")] = "vllm",
    length: Annotated[int, typer.Option("--context", help="Tokens of a session (the model's limit).")] = 0,
    sessions: Annotated[int, typer.Option(help="Sessions wanted at once.")] = 0,
    utilization: Annotated[float, typer.Option(help="Share of the card for the engine (its default).")] = 0.0,
    batch_tokens: Annotated[int, typer.Option(help="Tokens of a step (the engine's default).")] = 0,
    sequences: Annotated[int, typer.Option(help="Sequences at once (the engine's default).")] = 0,
    quantization: Annotated[str, typer.Option(help="On load: auto, none or fp8.")] = "auto",
    kv_dtype: Annotated[str, typer.Option(help="Of the cache: auto or fp8.")] = "auto",
    draft: Annotated[bool, typer.Option("--draft", help="With the model's own draft heads.")] = False,
    card: Annotated[str, typer.Option(help="Memory of a card as its runtime sees it, such as 79.19Gi.")] = "",
    usd_per_hour: Annotated[float, typer.Option(help="Price of a card and hour (the catalogue's).")] = 0.0,
    tokens_per_second: Annotated[float, typer.Option(help="Measured output rate, for a price per million.")] = 0.0,
    load: Annotated[str, typer.Option(help="PROMPT/OUTPUT/BATCH to predict times for, such as 8192/1024/32.")] = "",
    second_opinion: Annotated[Path | None, typer.Option(help="aiconfigurator's program, asked beside ours.")] = None,
    file: Annotated[str, typer.Option(help="Which file of a repository with several GGUF models.")] = "",
    explain: Annotated[bool, typer.Option("--explain", help="Each figure with formula and source.")] = False,
    form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "",
) -> None:
    """Print where a card's memory goes, how many sessions fit, what breaks first, and a setting that holds."""
    from stoker.cli.plan import show, source, times
    from stoker.predict import fits, overhead

    found = source.find(model, context.obj, file=file)
    asked = fits.Ask(
        parts=found.parts,
        shape=found.shape,
        gpu=cards.find(gpu, card),
        split=_split(count, tp=tp, pp=pp, dp=dp, ep=ep, draft=draft, quantization=quantization),
        load=overhead.Load(utilization=utilization, batch_tokens=batch_tokens, sequences=sequences),
        engine=engine,
        kv_element_bytes=_one_of(kv_dtype, {"auto": 2.0, "fp8": 1.0}, "--kv-dtype"),
        context_tokens=length,
        sessions=sessions,
        quantization=found.quantization,
    )
    asks = times.Asks(load=load, program=second_opinion, model=model)
    price = show.Price(usd_per_hour=usd_per_hour, tokens_per_second=tokens_per_second, asks=asks)
    plans = _plans(asked, found, quantization, settings=context.obj)
    show.plans(found, plans, price=price, explain=explain, form=form)
    raise typer.Exit(0 if plans[0].fits else 1)


def _plans(asked: "Ask", found: "Survey", quantization: str, *, settings: Settings) -> Sequence["Plan"]:
    """Plan it as it is, and in FP8 where an engine can make that; ``engine`` still has its version behind an @."""
    from stoker.predict import fits

    engine, _, version = asked.engine.partition("@")
    asked = replace(asked, engine=engine, version=version)

    table = cards.coefficients(settings)
    on_load = quantization == "auto" and found.format == "safetensors" and asked.engine in ("vllm", "sglang")
    return fits.choose(asked, table) if on_load else [fits.plan(asked, table)]


def _split(count: int, *, tp: int, pp: int, dp: int, ep: bool, draft: bool, quantization: str) -> "Split":
    from stoker.predict.roles import Split

    narrow = _one_of(quantization, {"auto": 0.0, "none": 0.0, "fp8": 1.0}, "--quantization")
    if min(count, tp) < 0 or min(pp, dp) < 1:
        raise Invalid(Fault(message="a number of cards cannot be below one", field="--count, --tp, --pp, --dp"))
    if count and not tp:
        if count % (pp * dp):
            why = f"{count} cards cannot be divided into {pp} stages and {dp} data parallel ranks"
            raise Invalid(Fault(message=why, field="--count"))
        tp = count // (pp * dp)
    tp = tp or 1
    if count and count != tp * pp * dp:
        why = f"tp {tp} times pp {pp} times dp {dp} is {tp * pp * dp}, not {count}"
        raise Invalid(Fault(message=why, field="--count"))
    return Split(tensor=tp, pipeline=pp, data=dp, expert=ep, draft=draft, quantize_to_bytes=narrow)


def _one_of(word: str, known: dict[str, float], option: str) -> float:
    if word not in known:
        raise Invalid(Fault(message=f"'{word}' is not possible", field=option, hint=f"one of {', '.join(known)}"))
    return known[word]
