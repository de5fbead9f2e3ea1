"""`stoker bench run`: one level of load, once or several times."""

from typing import TYPE_CHECKING

import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid
from stoker.cli.bench import options, show
from stoker.cli.bench.options import Wish

if TYPE_CHECKING:
    from stoker.bench.plan import Plan
    from stoker.bench.reach import Reached
    from stoker.bench.result import Result
    from stoker.bench.search import Taking
    from stoker.decide.measure.bar import Bar


def level(concurrency: int, users: int, rate: float, speed: float) -> tuple[str, float]:
    """Give the unit and the level of a load. Raises Invalid unless exactly one is given."""
    given = {"concurrency": concurrency, "users": users, "rate": rate, "speed": speed}
    found = [(unit, float(value)) for unit, value in given.items() if value]
    if len(found) != 1 or found[0][1] < 0:
        hint = "--concurrency 8, --users 20, --rate 2.5, or --trace FILE [--speed 1]"
        raise Invalid(Fault(message="say how large the load is, in one way", field="--concurrency, --rate", hint=hint))
    return found[0]


def run(
    url: options.Url,
    *,
    concurrency: int = typer.Option(0, "--concurrency", "-c", help="Requests in flight, always.", min=0),
    users: int = typer.Option(0, help="People, who think between their requests.", min=0),
    rate: float = typer.Option(0.0, "--rate", "-r", help="Requests a second, whatever becomes of them.", min=0),
    speed: float = typer.Option(0.0, help="A trace so many times as fast.", min=0),
    runs: int = typer.Option(1, help="How often, each with the next seed.", min=1),
    profile: options.Profile = "chat",
    trace: options.Trace = None,
    duration: options.Duration = "60s",
    model: options.Model = "",
    key: options.Key = "",
    dialect: options.Dialect = "chat",
    bar: options.BarOption = "",
    scale: options.Scale = 1.0,
    context: options.Context = 0,
    seed: options.Seed = 1,
    salt: options.Salt = "",
    answers: options.Answers = "model",
    shared: options.Head = "first",
    ignore_eos: options.Exact = False,
    extra: options.Extra = "",
    usd_per_hour: options.Price = 0.0,
    timeout: options.Timeout = "10m",
    ca: options.Ca = "",
    out: options.Out = None,
    form: options.Form = "",
) -> None:
    """Load an endpoint and tell what became of every scheduled request.

    Exit code 1 when a bar was given and not met.
    """
    options.form(form)
    unit, at = level(concurrency, users, rate, speed or (1.0 if trace else 0.0))
    judged = options.bar(bar)
    wish = Wish(
        url=url, model=model, key=key, dialect=dialect, ca=ca, profile=profile, trace=trace, scale=scale,
        context=context, duration=duration, salt=salt, answers=answers, head=shared, exact=ignore_eos, extra=extra,
        timeout=timeout,
    )  # fmt: skip
    plan = options.plan(wish, unit)
    reached = options.reach(wish, tools=plan.tools)
    taking = measured(reached, plan, judged, seeds=range(seed, seed + runs), at=at, usd_per_hour=usd_per_hour)
    found = result("run", reached, plan, judged, taking=taking, verdict=show.sentence(taking.steps))
    show.result(found, taking, out=out, form=form)
    failed = judged is not None and not all(step.passed for step in taking.steps)
    raise typer.Exit(1 if failed else 0)


def measured(
    reached: "Reached", plan: "Plan", judged: "Bar | None", *, seeds: range, at: float, usd_per_hour: float
) -> "Taking":
    """Run one level with each seed; Ctrl-C ends it with what there is."""
    from stoker.bench.search import Taking
    from stoker.bench.step import Bench, Interrupt

    live = show.Live()
    taking = Taking(usd_per_hour=usd_per_hour, told=live.step)
    with Interrupt() as interrupt:
        bench = Bench(reached, plan, judged, tell=live.tell, interrupt=interrupt)
        for each in seeds:
            if taking.take(bench, at, each).interrupted:
                break
    return taking


def result(
    kind: str, reached: "Reached", plan: "Plan", judged: "Bar | None", *, taking: "Taking", verdict: str
) -> "Result":
    """Put a result together."""
    from stoker.bench import result as results
    from stoker.bench.advice import advice

    return results.Result(
        kind=kind,
        at=clock.rfc3339(clock.now()),
        command=results.command(),
        setup=results.Setup.here(),
        asked=results.Asked.of(reached, plan),
        bar=judged,
        steps=tuple(taking.steps),
        verdict=verdict,
        notes=(*reached.notes, *advice(sample for samples in taking.samples for sample in samples)),
    )
