"""`stoker bench compare`: is B different from A?"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from stoker.base.errors import Fault, Invalid
from stoker.cli import output
from stoker.cli.bench import options, show
from stoker.cli.bench.options import Wish
from stoker.cli.bench.run import level, result

if TYPE_CHECKING:
    from stoker.bench.result import Result
    from stoker.bench.search import Taking
    from stoker.decide.measure.versus import Difference

_ABOUT = ("url", "model", "dialect", "server", "profile", "extra", "head", "answers", "window_seconds", "load", "bar")
_FREE = ("salt", "source", "tokens_per_word", "tokens_per_message", "tokens_per_request", "server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of two sides."""

    about: str
    metric: str
    errors_said: bool
    form: str


def compare(
    a: str = typer.Argument(help="A URL, or the folder of a result (`bench run --runs 6 --out A`)."),
    b: str = typer.Argument(help="The other; the same URL where --model-b or --extra-b differs."),
    *,
    about: str = typer.Option("url", help="The one thing in which they may differ: url, model, extra, head, …"),
    errors_differ: bool = typer.Option(False, "--errors-differ", help="Compare although their failures differ."),
    metric: str = typer.Option("goodput", help="goodput, tokens, requests, visible_ttft_p90, tpot_p50, e2e_p50, …"),
    concurrency: int = typer.Option(0, "--concurrency", "-c", help="Requests in flight, always.", min=0),
    users: int = typer.Option(0, help="People, who think between their requests.", min=0),
    rate: float = typer.Option(0.0, "--rate", "-r", help="Requests a second, whatever becomes of them.", min=0),
    runs: int = typer.Option(6, help="Pairs, each with a seed of its own.", min=3),
    model_b: str = typer.Option("", help="The model of B, where it is another."),
    extra_b: str = typer.Option("", help="The --extra of B, where it is another."),
    profile: options.Profile = "chat",
    duration: options.Duration = "60s",
    model: options.Model = "",
    key: options.Key = "",
    dialect: options.Dialect = "chat",
    bar: options.BarOption = "",
    scale: options.Scale = 1.0,
    context: options.Context = 0,
    seed: options.Seed = 1,
    extra: options.Extra = "",
    ignore_eos: options.Exact = False,
    timeout: options.Timeout = "10m",
    ca: options.Ca = "",
    out: options.Out = None,
    form: options.Form = "",
) -> None:
    """Run A and B in turn on the same seeds, and tell the effect with its interval.

    Refuses what differs in more than the named thing, was late, or fails more often unsaid.
    """
    from stoker.bench import search

    options.form(form)
    options.one_of(about, _ABOUT, field="--about")
    search.metric(metric)
    question = Question(about=about, metric=metric, errors_said=errors_differ, form=form)
    if Path(a).is_dir() and Path(b).is_dir():
        _recorded(Path(a), Path(b), question)
        return
    shared = Wish(
        url=a, model=model, key=key, dialect=dialect, ca=ca, profile=profile, trace=None, scale=scale,
        context=context, duration=duration, salt="", answers="script", head="first", exact=ignore_eos, extra=extra,
        timeout=timeout,
    )  # fmt: skip
    other = _other(shared, b, model=model_b, extra=extra_b)
    load = level(concurrency, users, rate, 0.0)
    _measured((shared, other), load, seeds=range(seed, seed + runs), judged=bar, question=question, out=out)


def _other(wish: Wish, url: str, *, model: str, extra: str) -> Wish:
    from dataclasses import replace

    return replace(wish, url=url, model=model or wish.model, extra=extra or wish.extra)


def _recorded(a: Path, b: Path, question: Question) -> None:
    """Compare what was measured before."""
    from stoker.bench import result as results

    _tell(_difference((results.read(a), results.read(b)), question), question)


def _measured(
    wishes: tuple[Wish, Wish], load: tuple[str, float], *, seeds: range, judged: str, question: Question,
    out: Path | None,
) -> None:  # fmt: skip
    """Measure both, in turn. What was measured is kept before it is judged: a refusal must not lose an hour."""
    from stoker.bench import search
    from stoker.bench.step import Bench, Interrupt

    bar = options.bar(judged)
    live = show.Live()
    unit, at = load
    plans = tuple(options.plan(wish, unit) for wish in wishes)
    reached = tuple(options.reach(wish, tools=plan.tools) for wish, plan in zip(wishes, plans, strict=True))
    taking = (search.Taking(told=live.step), search.Taking(told=live.step))
    with Interrupt() as interrupt:
        one, other = (
            Bench(r, p, bar, tell=live.tell, interrupt=interrupt) for r, p in zip(reached, plans, strict=True)
        )
        search.both((one, other), taking, level=at, seeds=seeds)
    first, second = (
        result("compare", r, p, bar, taking=t, verdict=f"one side of a comparison: {name}")
        for name, r, p, t in zip("AB", reached, plans, taking, strict=True)
    )
    sides = (first, second)
    _keep(sides, taking, out)
    if any(each.interrupted for each in taking):
        kept = f"; what was measured is in {out}" if out is not None else ""
        raise Invalid(Fault(message=f"it was interrupted: there are too few pairs to compare{kept}"))
    found = _difference(sides, question)
    said = search.verdict(found, question.metric)
    _keep((first, msgspec.structs.replace(second, difference=found, verdict=said)), taking, out)
    _tell(found, question)


def _keep(sides: "tuple[Result, Result]", taking: "tuple[Taking, Taking]", out: Path | None) -> None:
    from stoker.bench import result as results
    from stoker.bench.report.page import page

    if out is None:
        return
    for name, side, steps in zip("ab", sides, taking, strict=True):
        results.write(out / name, side, steps.samples, page(side, steps.samples))


def _difference(sides: "tuple[Result, Result]", question: Question) -> "Difference":
    from stoker.bench import search

    a, b = sides
    return search.difference(
        search.arms(a.steps, question.metric),
        search.arms(b.steps, question.metric),
        settings=(_settings(a), _settings(b)),
        about=question.about,
        errors_said=question.errors_said,
    )


def _settings(found: "Result") -> dict[str, str]:
    """Everything that must be the same; what is drawn anew for each run or comes of the server itself may differ."""
    asked = {name: str(value) for name, value in msgspec.to_builtins(found.asked).items() if name not in _FREE}
    loads = sorted({step.load for step in found.steps})
    return {**asked, "load": ", ".join(f"{load:g}" for load in loads), "bar": found.bar.words if found.bar else ""}


def _tell(found: "Difference", question: Question) -> None:
    from stoker.bench.search import verdict

    if question.form:
        output.data(msgspec.to_builtins(found), question.form)
        return
    print(verdict(found, question.metric))
