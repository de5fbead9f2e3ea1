"""`stoker bench checks`: are the answers right, and are they still under load?"""

from typing import TYPE_CHECKING

import msgspec
import typer

from stoker.base.errors import Driver
from stoker.cli import output
from stoker.cli.bench import options, show
from stoker.cli.bench.options import Wish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.bench.plan import Plan
    from stoker.bench.reach import Reached
    from stoker.decide.score.tally import Mark, Row


def checks(
    url: options.Url,
    *,
    concurrency: int = typer.Option(0, "--concurrency", "-c", help="Load beside them; 0: only at rest.", min=0),
    profile: options.Profile = "chat",
    duration: options.Duration = "60s",
    model: options.Model = "",
    key: options.Key = "",
    dialect: options.Dialect = "chat",
    scale: options.Scale = 1.0,
    context: options.Context = 0,
    seed: options.Seed = 1,
    timeout: options.Timeout = "10m",
    ca: options.Ca = "",
    form: options.Form = "",
) -> None:
    """Ask cases whose answer is known, at rest and inside a load, and compare them class by class.

    Exit code 1 when a case that is right at rest is wrong under load. What is not answered is not measured.
    """
    from stoker.bench.suite import ask, play
    from stoker.decide.score import controls, tally

    options.form(form)
    faults = controls.faults(ask.CASES)
    if faults:
        raise Driver(f"the suite itself is broken: {'; '.join(faults)}")
    wish = Wish(
        url=url, model=model, key=key, dialect=dialect, ca=ca, profile=profile, trace=None, scale=scale,
        context=context, duration=duration, salt="", answers="script", head="first", exact=False, extra="",
        timeout=timeout,
    )  # fmt: skip
    plan = options.plan(wish, "concurrency")
    reached = options.reach(wish, tools=plan.tools)
    with output.err.status("at rest") as shown:
        rest = play.at_rest(reached.target, reached.book, tell=lambda mark: shown.update(f"at rest: {mark.case}"))
    load = _loaded(reached, plan, concurrency, seed) if concurrency else []
    changed = tally.changed(rest, load)
    if form:
        told = {"rows": tally.table(rest, load), "changed": changed, "rest": rest, "load": load}
        output.data(msgspec.to_builtins(told), form)
    else:
        _print(tally.table(rest, load), changed)
    raise typer.Exit(1 if changed else 0)


def _loaded(reached: "Reached", plan: "Plan", concurrency: int, seed: int) -> "list[Mark]":
    from stoker.bench.search import Taking
    from stoker.bench.step import Bench
    from stoker.bench.suite import play

    live = show.Live()
    clients = max(1, round(concurrency * play.SHARE))
    with play.Beside(reached.target, reached.book, clients=clients) as beside:
        Taking(told=live.step).take(Bench(reached, plan, None, tell=live.tell), float(concurrency), seed)
    return beside.marks


def _print(rows: "Sequence[Row]", changed: "Sequence[str]") -> None:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    output.table(
        ("CLASS", "RIGHT AT REST", "UNDER LOAD", "ASKED UNDER LOAD", "NOT MEASURED"),
        [
            (row.kind, share(row.rest), share(row.load), str(row.load_right + row.load_wrong), str(row.not_measured))
            for row in rows
        ],
    )
    print(f"\nright at rest and wrong under load: {', '.join(changed) or 'none'}")
