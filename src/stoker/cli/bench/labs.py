"""`stoker bench labs`: experiments to learn from, on whatever endpoint there is."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stoker.base.errors import Fault, Invalid
from stoker.cli import output
from stoker.cli.bench import options, show
from stoker.cli.bench.options import Wish

if TYPE_CHECKING:
    from stoker.bench.labs.lab import Lab, Report
    from stoker.decide.measure.summary import Step

app = typer.Typer(help="Guided experiments; each writes a report.", no_args_is_help=True)


@app.command("list")
def listing() -> None:
    """List the experiments."""
    from stoker.bench.labs import failure
    from stoker.bench.labs.known import LABS

    rows = [(lab.name, lab.question, "a URL and --model-b" if lab.two_models else "a URL") for lab in LABS]
    output.table(("LAB", "QUESTION", "NEEDS"), [*rows, ("failure", failure.QUESTION, "nothing")])


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="concurrency, sessions, prefix, models or failure.")],
    url: Annotated[str, typer.Argument(help="The endpoint; the lab `failure` brings its own.")] = "",
    *,
    model: options.Model = "",
    model_b: Annotated[str, typer.Option(help="The second model, for the lab `models`.")] = "",
    predicted: Annotated[int, typer.Option(help="Sessions that `stoker plan` predicts, for that lab.", min=0)] = 0,
    key: options.Key = "",
    dialect: options.Dialect = "chat",
    duration: options.Duration = "30s",
    scale: options.Scale = 16.0,
    context: options.Context = 0,
    seed: options.Seed = 1,
    usd_per_hour: options.Price = 0.0,
    ca: options.Ca = "",
    out: Annotated[Path, typer.Option(help="The folder for lab.md and the report of each arm.")] = Path("lab"),
    form: options.Form = "",
) -> None:
    """Run an experiment and write its report."""
    options.form(form)
    wish = Wish(
        url=url, model=model, key=key, dialect=dialect, ca=ca, profile="chat", trace=None, scale=scale,
        context=context, duration=duration, salt="", answers="script", head="first", exact=False, extra="",
        timeout="10m",
    )  # fmt: skip
    if name == "failure":
        report = _failure()
    else:
        from stoker.bench.labs.known import find

        lab = find(name)
        if not url:
            raise Invalid(
                Fault(message="this lab needs an endpoint", field="URL", hint="such as http://127.0.0.1:8080")
            )
        if lab.two_models and not model_b:
            raise Invalid(Fault(message="this lab compares two models", field="--model-b", hint="name the second one"))
        report = _measured(lab, wish, model_b, seed=seed, usd_per_hour=usd_per_hour, predicted=predicted)
    _write(report, out, form)


def _measured(lab: "Lab", wish: Wish, model_b: str, *, seed: int, usd_per_hour: float, predicted: int) -> "Report":
    from stoker.bench import result as results
    from stoker.bench.labs.lab import COLUMNS, Report, row
    from stoker.bench.plan import with_head
    from stoker.bench.search import Taking
    from stoker.bench.step import Bench

    live, steps, rows = show.Live(), [], []
    more, targets = "", []
    for arm in lab.arms:
        own = replace(wish, model=model_b if arm.second else wish.model, head="last" if arm.head_last else "first")
        plan = options.plan(own, "concurrency")
        if lab.head_tokens:
            plan = replace(plan, profile=with_head(plan.profile, round(lab.head_tokens / wish.scale)))
        reached = options.reach(own, tools=plan.tools)
        targets.append(f"{reached.target.model} at {reached.target.url}")
        taking = Taking(usd_per_hour=usd_per_hour, told=live.step)
        step = taking.take(Bench(reached, plan, None, tell=live.tell), float(arm.concurrency), seed)
        if step.interrupted:
            raise Invalid(Fault(message="it was interrupted: there is nothing to compare"))
        steps.append(step)
        rows.append(row(arm, step))
        more += _quality(own, arm.label) if lab.two_models else ""
    if predicted and lab.name == "sessions":
        from stoker.bench.labs import known as labs

        more += labs.predicted(steps, predicted)
    return Report(
        lab=lab.name,
        question=lab.question,
        method=lab.method,
        setup=results.Setup.here(),
        target=" and ".join(dict.fromkeys(targets)),
        usd_per_hour=usd_per_hour,
        columns=COLUMNS,
        rows=tuple(rows),
        surprise=_late(steps) or lab.read(steps),
        reproduce=results.command(),
        more=more,
    )


def _late(steps: "list[Step]") -> tuple[str, ...]:
    """A lab whose generator was late shows nothing."""
    late = next((step.late for step in steps if step.late), "")
    return (f"Not measured: {late}. Run it again on a machine with less to do.",) if late else ()


def _quality(wish: Wish, label: str) -> str:
    """Ask the check suite at rest, and write its table."""
    from stoker.bench.suite import play
    from stoker.decide.score import tally

    reached = options.reach(wish, tools=False)
    rows = tally.table(play.at_rest(reached.target, reached.book), [])
    cells = "\n".join(
        f"| {r.kind} | {r.rest_right} of {r.rest_right + r.rest_wrong} | {r.not_measured} |" for r in rows
    )
    return (
        f"## Checks: {label} ({reached.target.model})\n\n| class | right | not measured |\n|---|---|---|\n{cells}\n\n"
    )


def _failure() -> "Report":
    from stoker.bench import result as results
    from stoker.bench.labs import failure
    from stoker.bench.labs.lab import Report
    from stoker.bench.selfcheck.checks import asks
    from stoker.bench.selfcheck.play import play
    from stoker.decide.measure.classes import Class
    from stoker.drivers.hosts.rehearsal import known

    with known() as engine:
        samples = play(engine, failure.BEHAVIOUR, asks(80, output=40), clients=4).samples
    rows = [(kind.value, str(count)) for kind in Class if (count := sum(s.kind is kind for s in samples))]
    return Report(
        lab="failure",
        question=failure.QUESTION,
        method=failure.METHOD,
        setup=results.Setup.here(),
        target="the rehearsal engine of this version",
        usd_per_hour=0.0,
        columns=("class", "requests"),
        rows=tuple(rows),
        surprise=failure.surprise(samples),
        reproduce=results.command(),
        more=failure.MORE,
    )


def _write(report: "Report", out: Path, form: str) -> None:
    from stoker.bench.labs.lab import markdown
    from stoker.drivers import files

    text = markdown(report)
    out.mkdir(parents=True, exist_ok=True)
    files.replace(out / "lab.md", text.encode(), mode=0o644)
    files.replace(out / "lab.json", msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n", mode=0o644)
    if form:
        output.data(msgspec.to_builtins(report), form)
        return
    print(text)
    print(f"written: {out / 'lab.md'}, lab.json")
