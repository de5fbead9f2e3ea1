"""`stoker bench ramp`: at which load is a bar just met, and how sure is that?"""

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import typer

from stoker.base.errors import Fault, Invalid
from stoker.cli import output
from stoker.cli.bench import options, show
from stoker.cli.bench.options import Wish
from stoker.cli.bench.run import result

if TYPE_CHECKING:
    from stoker.bench.plan import Plan
    from stoker.bench.reach import Reached
    from stoker.bench.search import Taking
    from stoker.bench.step import Bench
    from stoker.decide.measure.bar import Bar
    from stoker.decide.measure.capacity import Capacity

_STARTS = {"rate": 0.5, "concurrency": 1.0, "users": 4.0}


class Told(NamedTuple):
    """An answer in a sentence, and what it does not say."""

    sentence: str
    cannot: tuple[str, ...] = ()


def ramp(
    url: options.Url,
    *,
    bar: options.BarOption = "",
    by: str = typer.Option("rate", help="What a level is: rate, concurrency or users."),
    start: float = typer.Option(0.0, "--from", help="The first level (0.5 requests/s, 1 in flight, 4 users).", min=0),
    runs: int = typer.Option(6, help="Runs at each level of the confirmation, each with a seed of its own.", min=3),
    quick: bool = typer.Option(False, "--quick", help="The coarse ramp alone; says what it cannot claim."),
    profile: options.Profile = "chat",
    duration: options.Duration = "120s",
    model: options.Model = "",
    key: options.Key = "",
    dialect: options.Dialect = "chat",
    scale: options.Scale = 1.0,
    context: options.Context = 0,
    seed: options.Seed = 1,
    salt: options.Salt = "",
    answers: options.Answers = "script",
    shared: options.Head = "first",
    ignore_eos: options.Exact = False,
    extra: options.Extra = "",
    usd_per_hour: options.Price = 0.0,
    timeout: options.Timeout = "10m",
    ca: options.Ca = "",
    out: options.Out = None,
    form: options.Form = "",
) -> None:
    """Raise the load until the bar fails twice, then confirm: levels x runs on the same seeds, and an interval.

    Exit code 1 when no capacity can be given.
    """
    options.form(form)
    options.one_of(by, tuple(_STARTS), field="--by")
    judged = _needed(options.bar(bar))
    wish = Wish(
        url=url, model=model, key=key, dialect=dialect, ca=ca, profile=profile, trace=None, scale=scale,
        context=context, duration=duration, salt=salt, answers=answers, head=shared, exact=ignore_eos, extra=extra,
        timeout=timeout,
    )  # fmt: skip
    plan = options.plan(wish, by)
    reached = options.reach(wish, tools=plan.tools)
    seeds = range(seed, seed + (1 if quick else runs))
    taking, told, found = _measured(
        reached, plan, judged, start=start or _STARTS[by], seeds=seeds, usd_per_hour=usd_per_hour
    )
    made = result("ramp", reached, plan, judged, taking=taking, verdict=told.sentence)
    made = msgspec.structs.replace(made, capacity=found, cannot_claim=told.cannot)
    show.result(made, taking, out=out, form=form)
    raise typer.Exit(0 if quick or _known(found) else 1)


def _known(found: "Capacity | None") -> bool:
    return found is not None and found.value > 0 and found.verdict != "below"


def _needed(bar: "Bar | None") -> "Bar":
    if bar is None:
        hint = "chat, agent, batch, or a file with visible_ttft_p90_seconds, tokens_per_second_per_user, error_rate"
        raise Invalid(Fault(message="write down what good means before you measure", field="--bar", hint=hint))
    return bar


def _measured(
    reached: "Reached", plan: "Plan", judged: "Bar", *, start: float, seeds: range, usd_per_hour: float
) -> "tuple[Taking, Told, Capacity | None]":
    from stoker.bench.search import Taking
    from stoker.bench.step import Bench, Interrupt

    live = show.Live()
    taking = Taking(usd_per_hour=usd_per_hour, told=live.step)
    with Interrupt() as interrupt:
        bench = Bench(reached, plan, judged, tell=live.tell, interrupt=interrupt)
        return (taking, *_search(bench, taking, judged, start=start, seeds=seeds))


def _search(
    bench: "Bench", taking: "Taking", judged: "Bar", *, start: float, seeds: range
) -> "tuple[Told, Capacity | None]":
    """Climb, then confirm; gives the answer in words and in figures."""
    from dataclasses import replace

    from stoker.bench import search
    from stoker.decide.measure.ramp import around

    plan = bench.plan
    seen = search.climb(bench, taking, start=start, seed=seeds[0])
    failed = around(seen).failed
    said = search.quickly(seen, judged, plan.unit)
    cut = Told(f"{said}; interrupted: this is what was measured until then", search.QUICK_CANNOT)
    if taking.interrupted:
        return cut, None
    if len(seeds) == 1 or not failed:
        return Told(said, search.QUICK_CANNOT), None
    minutes = len(seeds) * 5 * plan.window_seconds / 60
    output.err.print(f"confirming around {failed:.3g}: 5 levels x {len(seeds)} runs, about {minutes:.0f} minutes")
    bench.plan = replace(plan, sessions_rate=failed)  # the same sessions at every level
    found = search.confirm(bench, taking, failed=failed, seeds=seeds, bar=judged)
    if any(step.interrupted for step in taking.steps):
        return cut, None
    return Told(search.told(found, judged, plan.unit, window_seconds=plan.window_seconds)), found
