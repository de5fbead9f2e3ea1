"""`stoker bench compare`: is B different from A?"""

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
    from stoker.decide.measure.versus import Difference

_ABOUT = ("url", "model", "dialect", "server", "profile", "extra", "head", "answers", "window_seconds", "errors")
_FREE = ("salt", "source", "tokens_per_word", "tokens_per_message", "tokens_per_request", "server")


def compare(
    a: str = typer.Argument(help="A URL, or the folder of a result (`bench run --runs 6 --out A`)."),
    b: str = typer.Argument(help="The other; the same URL where --model-b or --extra-b differs."),
    *,
    about: str = typer.Option("url", help="The one thing in which they may differ: url, model, extra, head, …"),
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
    if Path(a).is_dir() and Path(b).is_dir():
        _recorded(Path(a), Path(b), about=about, metric=metric, form=form)
        return
    shared = Wish(
        url=a, model=model, key=key, dialect=dialect, ca=ca, profile=profile, trace=None, scale=scale,
        context=context, duration=duration, salt="", answers="script", head="first", exact=ignore_eos, extra=extra,
        timeout=timeout,
    )  # fmt: skip
    other = _other(shared, b, model=model_b, extra=extra_b)
    unit, at = level(concurrency, users, rate, 0.0)
    _measured((shared, other), unit, at, seeds=range(seed, seed + runs), judged=bar, about=about, metric=metric,
              out=out, form=form)  # fmt: skip


def _other(wish: Wish, url: str, *, model: str, extra: str) -> Wish:
    from dataclasses import replace

    return replace(wish, url=url, model=model or wish.model, extra=extra or wish.extra)


def _recorded(a: Path, b: Path, *, about: str, metric: str, form: str) -> None:
    """Compare what was measured before."""
    from stoker.bench import result as results
    from stoker.bench import search

    first, second = results.read(a), results.read(b)
    value = search.metric(metric)
    found = search.difference(
        search.arms(first.steps, value),
        search.arms(second.steps, value),
        settings=(_settings(first), _settings(second)),
        about=about,
    )
    _tell(found, metric, form)


def _measured(
    wishes: tuple[Wish, Wish],
    unit: str,
    at: float,
    *,
    seeds: range,
    judged: str,
    about: str,
    metric: str,
    out: Path | None,
    form: str,
) -> None:
    """Measure both, in turn."""
    from stoker.bench import search
    from stoker.bench.step import Bench

    bar = options.bar(judged)
    live = show.Live()
    plans = tuple(options.plan(wish, unit) for wish in wishes)
    reached = tuple(options.reach(wish, tools=plan.tools) for wish, plan in zip(wishes, plans, strict=True))
    benches = (Bench(reached[0], plans[0], bar, tell=live.tell), Bench(reached[1], plans[1], bar, tell=live.tell))
    taking = (search.Taking(told=live.step), search.Taking(told=live.step))
    search.both(benches, taking, level=at, seeds=seeds)
    value = search.metric(metric)
    sides = [
        result("compare", r, p, bar, taking=t, verdict=name)
        for name, r, p, t in zip("AB", reached, plans, taking, strict=True)
    ]
    if out is not None:
        _keep(sides, taking, out)
    if any(each.interrupted for each in taking):
        raise Invalid(Fault(message="it was interrupted: there are too few pairs to compare"))
    found = search.difference(
        search.arms(taking[0].steps, value),
        search.arms(taking[1].steps, value),
        settings=(_settings(sides[0]), _settings(sides[1])),
        about=about,
    )
    _tell(found, metric, form)


def _keep(sides: "list[Result]", taking: tuple[object, object], out: Path) -> None:
    from stoker.bench import result as results
    from stoker.bench.report.page import page
    from stoker.bench.search import Taking

    for side, steps in zip(sides, taking, strict=True):
        if isinstance(steps, Taking):
            results.write(out / side.verdict.lower(), side, steps.samples, page(side, steps.samples))


def _settings(found: "Result") -> dict[str, str]:
    """Everything that must be the same; what is drawn anew for each run or comes of the server itself may differ."""
    asked = {name: str(value) for name, value in msgspec.to_builtins(found.asked).items() if name not in _FREE}
    loads = sorted({step.load for step in found.steps})
    return {**asked, "load": ", ".join(f"{load:g}" for load in loads), "bar": found.bar.words if found.bar else ""}


def _tell(found: "Difference", metric: str, form: str) -> None:
    if form:
        output.data(msgspec.to_builtins(found), form)
        return
    said = "different" if found.different else "not shown to be different"
    print(
        f"{metric}: B is {found.ratio:.3f} x A (95 % CI {found.low:.3f}-{found.high:.3f}; p {found.p:.3f};"
        f" {found.pairs} pairs): {said}"
    )
