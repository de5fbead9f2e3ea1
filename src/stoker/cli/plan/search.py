"""Which configuration serves so many people at the lowest cost? `stoker plan MODEL --for USECASE`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid, NotFound
from stoker.base.json import JsonObject
from stoker.cli import output
from stoker.cli.plan import cards as learned
from stoker.cli.settings import Settings

if TYPE_CHECKING:
    from stoker.cli.plan.found import Story
    from stoker.cli.plan.wish import Wish
    from stoker.decide.goodput.candidates import Space
    from stoker.decide.goodput.search import Known, Result, Tell
    from stoker.drivers.weights import Survey
    from stoker.predict.cost import Hosted
    from stoker.predict.gpu import Gpu

_GPUS = "l40s,a100-sxm-80,h100-sxm,h200,b200"
_FORMS = ("", "json", "yaml", "manifest")
_PROVED = 3  # replications for the one that is chosen


def search(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="A .gguf file, a folder, REPO[@REVISION], or a name of `stoker models`.")
    ],
    *,
    case: Annotated[str, typer.Option("--for", help="chat, agent, rag, batch, …; a UseCase's file; a trace.")],
    users: Annotated[int, typer.Option(help="People who have it; not all are at work at once.")] = 0,
    in_flight: Annotated[float, typer.Option(help="Requests in flight, if you know it; instead of --users.")] = 0.0,
    gpus: Annotated[str, typer.Option(help="Cards to look at, with commas.")] = _GPUS,
    engine: Annotated[list[str] | None, typer.Option(help="ENGINE[@VERSION]; may be given again (vllm).")] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="Another checkpoint of the same model, such as FP8.")
    ] = None,
    length: Annotated[int, typer.Option("--context", help="Tokens of a session (the use case's).")] = 0,
    max_cards: Annotated[int, typer.Option(help="Cards of one replica, at most.")] = 8,
    ttft: Annotated[float, typer.Option(help="Seconds to the first visible word, for 9 of 10 (the use case's).")] = 0.0,
    pace: Annotated[float, typer.Option(help="Tokens a second for each user, for 9 of 10 (the use case's).")] = 0.0,
    hosted: Annotated[list[str] | None, typer.Option(help="[NAME=]INPUT,CACHED,OUTPUT per million, or a file.")] = None,
    prices: Annotated[Path | None, typer.Option(help="What cards cost: a file with date and cards.")] = None,
    growth: Annotated[str, typer.Option(help="How much more it will be, such as 10x; with --by.")] = "",
    by: Annotated[str, typer.Option(help="The day of that growth, such as 2027-12-31.")] = "",
    python: Annotated[str, typer.Option(help="The engine's Python, for -o manifest.")] = "/opt/engine/bin/python",
    explain: Annotated[bool, typer.Option("--explain", help="Each figure with formula and source.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with bars and curves.")] = None,
    form: Annotated[str, typer.Option("--output", "-o", help="json, yaml, or manifest: ready to apply.")] = "",
) -> None:
    """Rank cards, precisions, parallelism and flags by what they cost while the bar holds."""
    from stoker.cli.plan import wish

    if form not in _FORMS:
        raise Invalid(Fault(message=f"'{form}' is no form", field="--output", hint="json, yaml or manifest"))
    settings: Settings = context.obj
    terms = _terms(hosted or [], growth=growth, by=by)
    load = wish.wish(wish.case(case), settings, users=users, in_flight=in_flight, context=length, ttft=ttft, pace=pace)
    surveys = _surveys([model, *(variant or [])], settings)
    choice = _Choice(gpus=gpus, engines=engine or ["vllm"], most=max_cards, prices=prices)
    story = _story(surveys, load, choice, settings)
    story = _with_money(story, terms)
    _tell(story, settings, form=form, html=html, python=python, explain=explain)
    if story.best is None:
        raise typer.Exit(1)


def _tell(story: "Story", settings: Settings, *, form: str, html: Path | None, python: str, explain: bool) -> None:
    from stoker.cli.plan import found, manifest

    best = story.best
    if html is not None and best is not None:
        from stoker.cli.plan import page

        html.write_text(page.page(story))
        output.err.print(f"written: {html}")
    if form == "manifest":
        if best is None:
            kinds = "; ".join(sorted({d.kind for d in story.result.dropped}))
            raise NotFound(f"nothing serves this within the bar, so there is no manifest: {kinds}")
        model = _source(best.candidate.variant.name, settings)
        day = clock.rfc3339(clock.now())[:10]
        print(manifest.text(best, story.wish, model=model, python=python, day=day), end="")
    elif form:
        output.data(found.as_json(story), form)
    else:
        found.text(story, explain=explain)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    gpus: str
    engines: Sequence[str]
    most: int
    prices: Path | None


def _surveys(names: Sequence[str], settings: Settings) -> "Mapping[str, Survey]":
    from stoker.cli.plan import source

    found = {name: source.find(name, settings) for name in names}
    shapes = {(s.shape.hidden, len(s.shape.layers), s.shape.vocab) for s in found.values()}
    if len(shapes) > 1:
        raise Invalid(Fault(message="the variants are not of one model: their shapes differ", field="--variant"))
    return found


def _story(surveys: "Mapping[str, Survey]", asked: "Wish", choice: _Choice, settings: Settings) -> "Story":
    from stoker.cli.plan.found import Story
    from stoker.decide.goodput import search as searching
    from stoker.decide.goodput.candidates import Space, Variant
    from stoker.drivers import figures

    variants = [
        Variant(name=name, parts=s.parts, shape=s.shape, format=s.format, quantization=s.quantization,
                on_load=s.format == "safetensors")
        for name, s in surveys.items()
    ]  # fmt: skip
    limit = min(s.shape.context_tokens or 1 << 40 for s in surveys.values())
    asked = replace(asked, context_tokens=min(asked.context_tokens or limit, limit))
    cards = _cards(choice.gpus)
    dates, usd = _prices(cards, choice.prices)
    space = Space(
        variants=variants,
        gpus=cards,
        engines=choice.engines,
        context_tokens=asked.context_tokens if asked.context_tokens < 1 << 40 else 0,
        most_cards=choice.most,
    )
    known = searching.Known(memory=learned.coefficients(settings), speed=figures.speed(), usd=usd)
    result = _searched(space, asked, known)
    return Story(model=next(iter(surveys)), wish=asked, result=result, dates=dates)


def _searched(space: "Space", asked: "Wish", known: "Known") -> "Result":
    from stoker.decide.goodput import search as searching

    with _progress() as tell:
        result = searching.search(space, asked.wanted, known, tell=tell)
        proved = [searching.proved(o, asked.wanted, seeds=_PROVED) for o in result.options[:1]]
        return replace(result, options=(*proved, *result.options[1:]))


@contextmanager
def _progress() -> "Iterator[Tell]":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=output.err, transient=True, disable=not output.err.is_terminal) as progress:
        tasks = {name: progress.add_task(name, total=None) for name in ("plan", "simulate")}

        def tell(what: str, done: int, total: int) -> None:
            progress.update(tasks[what], completed=done, total=total)

        yield tell


def _cards(names: str) -> "list[Gpu]":
    from stoker.drivers import figures
    from stoker.predict.gpu import find

    found = [find(figures.gpus(), name.strip()) for name in names.split(",") if name.strip()]
    if not found:
        raise Invalid(Fault(message="no card is named", field="--gpus", hint="such as h100,l40s"))
    return list(dict.fromkeys(found))


def _prices(cards: "Sequence[Gpu]", file: Path | None) -> tuple[dict[str, str], dict[str, float]]:
    """The dates and the prices of those cards that have one: the user's before the catalogue's middle."""
    dates, usd = {}, {}
    for gpu in cards:
        if gpu.price is not None:
            usd[gpu.name] = (gpu.price.low_usd + gpu.price.high_usd) / 2
            dates[gpu.name] = f"{gpu.price.date}, catalogue: middle of {gpu.price.low_usd} to {gpu.price.high_usd}"
    if file is not None:
        from stoker.drivers import figures
        from stoker.drivers.figures import given
        from stoker.predict.gpu import find

        told = given.card_prices(file)
        for name, price in told.cards.items():
            gpu = find(figures.gpus(), name)
            usd[gpu.name], dates[gpu.name] = price, f"{told.date}, yours"
    return dates, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What is said of money and the future. ``factor`` 0: nothing."""

    hosted: "Sequence[Hosted]"
    factor: float
    by: date | None


def _terms(hosted: Sequence[str], *, growth: str, by: str) -> _Terms:
    """Read it before anything takes time."""
    from stoker.drivers.figures import given

    if bool(growth) != bool(by):
        raise Invalid(Fault(message="--growth and --by belong together", field="--growth", hint="10x --by 2027-12-31"))
    return _Terms(
        hosted=[each for text in hosted for each in given.hosted(text)],
        factor=_factor(growth) if growth else 0.0,
        by=_day(by) if by else None,
    )


def _with_money(story: "Story", terms: _Terms) -> "Story":
    from stoker.decide.goodput import prices

    best = story.best
    if best is None:
        return story
    story = replace(story, money=prices.money(best, story.wish.wanted, terms.hosted))
    if terms.by is None:
        return story
    today = date.fromisoformat(clock.rfc3339(clock.now())[:10])
    steps = prices.growth(best, story.wish.wanted, factor=terms.factor, today=today, by=terms.by)
    return replace(story, growth=steps, needed=prices.needed(best, story.wish.wanted, terms.factor))


def _factor(text: str) -> float:
    try:
        return float(text.lower().removesuffix("x"))
    except ValueError:
        raise Invalid(Fault(message=f"'{text}' is no growth", field="--growth", hint="such as 10x")) from None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Invalid(Fault(message=f"'{text}' is no day", field="--by", hint="such as 2027-12-31")) from None


def _source(name: str, settings: Settings) -> JsonObject:
    """Where a deployment finds the model."""
    from stoker.drivers import models

    path = Path(name).expanduser()
    if path.exists():
        return {"path": str(path.absolute())}
    if models.packaged_path(settings.layout.models, name) is not None:
        return {"name": name}
    repo, _, revision = name.partition("@")
    found: JsonObject = {"repo": repo}
    return found | ({"revision": revision} if revision else {})
