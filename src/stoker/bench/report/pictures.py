"""What does an experiment look like? One point a level of load, drawn through the middle of its runs."""

from collections.abc import Callable, Sequence
from html import escape
from statistics import median
from typing import Final

from stoker.bench.plan import Unit
from stoker.bench.report.charts import COLOURS, Axes, Band, Curve, Point, chart, fans, strip
from stoker.bench.report.others import Other
from stoker.bench.result import Result
from stoker.decide.measure.capacity import Verdict
from stoker.decide.measure.classes import Class
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Spread, Step

_MOST_POINTS: Final = 2000
_KINDS: Final = {
    Class.ERROR: "#d62728",
    Class.TRUNCATED: "#ff7f0e",
    Class.TIMEOUT: "#9467bd",
    Class.REJECTED: "#8c564b",
    Class.TOOL_PARSE: "#e377c2",
    Class.EMPTY: "#17becf",
    Class.NOT_MEASURED: "#7f7f7f",
}
_FANS: Final = (("visible_ttft", "visible TTFT", 0), ("tpot", "TPOT", 2), ("e2e", "end to end", 4))


def by_level(steps: Sequence[Step]) -> list[list[Step]]:
    """Put the runs of a level together, the lowest level first; what was late is no run of any."""
    loads = sorted({step.load for step in steps if not step.late})
    return [[step for step in steps if step.load == load and not step.late] for load in loads]


def attained(result: Result) -> list[str]:
    """Draw which share of the requests met the bar at each load, and where the capacity lies."""
    groups = by_level(result.steps)
    if result.bar is None or len(groups) < 2:
        return []
    found = result.capacity
    band = None
    if found is not None and found.verdict is Verdict.CAPACITY:
        band = Band(low=found.low, at=found.value, high=found.high)
    curves = [
        *_through("met the bar", groups, lambda s: s.load, lambda s: s.attainment, colour=0),
        *_through("failed", groups, lambda s: s.load, lambda s: s.failed_share, colour=1),
    ]
    axes = Axes(across=f"load, {_unit(groups[0][0])}", up="share of the requests", level=result.bar.share, band=band)
    return ["<h2>The bar</h2>", chart(curves, axes)]


def curves(result: Result, others: Sequence[Other]) -> list[str]:
    """Draw the latency of each level over its throughput, with what others measured beside it."""
    groups = by_level(result.steps)
    if len(groups) < 2 and not others:
        return []
    limits = dict(result.bar.limits) if result.bar is not None else {}
    first = [
        *_through("visible TTFT p50", groups, _rate, lambda s: s.times.visible_ttft.p50, colour=0),
        *_through("visible TTFT p90", groups, _rate, lambda s: s.times.visible_ttft.p90, colour=1),
    ]
    pace = [
        *_through("TPOT p50", groups, _rate, lambda s: s.times.tpot.p50, colour=2),
        *_through("TPOT p90", groups, _rate, lambda s: s.times.tpot.p90, colour=3),
    ]
    for i, other in enumerate(others):
        rows, colour = other.rows, COLOURS[(4 + i) % len(COLOURS)]
        ttft = [Point(r.tokens_per_second, r.ttft_p50_seconds) for r in rows]
        tpot = [Point(r.tokens_per_second, r.tpot_p50_seconds) for r in rows]
        first.append(Curve(name=f"{other.name} TTFT p50", points=sorted(ttft), colour=colour))
        pace.append(Curve(name=f"{other.name} TPOT p50", points=sorted(tpot), colour=colour))
    across = "output tokens a second, all users together"
    return [
        "<h2>Latency over throughput</h2>",
        chart(first, Axes(across=across, up="s", level=limits.get("visible_ttft"))),
        chart(pace, Axes(across=across, up="s a token", level=limits.get("tpot"))),
    ]


def _rate(step: Step) -> float:
    return step.tokens.per_second


def _unit(step: Step) -> str:
    return Unit(step.unit).words


def _through(
    name: str,
    groups: Sequence[Sequence[Step]],
    x: Callable[[Step], float],
    y: Callable[[Step], float],
    *,
    colour: int,
) -> list[Curve]:
    """Draw a line through the middle of each level's runs, and the runs themselves where there are several."""
    ink = COLOURS[colour % len(COLOURS)]
    middle = [Point(median(map(x, runs)), median(map(y, runs))) for runs in groups]
    found = [Curve(name=name, points=middle, colour=ink)]
    if any(len(runs) > 1 for runs in groups):
        single = [Point(x(step), y(step)) for runs in groups for step in runs]
        found.append(Curve(name="", points=single, colour=ink, dots=True))
    return found


def percentiles(result: Result) -> list[str]:
    """Draw a fan for each level: the middle of its runs' p50, p90, p95 and p99."""
    groups = by_level(result.steps)
    if not groups:
        return []
    names = [f"{runs[0].load:g}" for runs in groups]
    limits = dict(result.bar.limits) if result.bar is not None else {}
    found = ["<h2>Percentiles</h2>"]
    for name, shown, colour in _FANS:
        rows = []
        for runs in groups:
            spreads: list[Spread] = [getattr(step.times, name) for step in runs]
            rows.append(
                [median(values) for values in zip(*((s.p50, s.p90, s.p95, s.p99) for s in spreads), strict=True)]
            )
        across = f"{shown}: p50, p90, p95, p99 at each load ({_unit(groups[0][0])})"
        axes = Axes(across=across, up="s", level=limits.get(name), names=names)
        found.append(fans(rows, axes, colour=COLOURS[colour]))
    return found


def worth_a_look(steps: Sequence[Step]) -> list[int]:
    """Choose the runs to show in time: at the highest level that passed, at the lowest that failed; else the last."""
    passed = max((i for i, s in enumerate(steps) if s.passed), key=lambda i: steps[i].load, default=None)
    failed = min((i for i, s in enumerate(steps) if s.passed is False), key=lambda i: steps[i].load, default=None)
    found = [i for i in (passed, failed) if i is not None]
    return found or ([len(steps) - 1] if steps else [])


def timelines(result: Result, samples: Sequence[Sequence[Sample]]) -> list[str]:
    """Draw when each request of a run began to answer, and when something went wrong."""
    level = dict(result.bar.limits).get("visible_ttft") if result.bar is not None else None
    found = []
    for i in worth_a_look(result.steps):
        found += _timeline(result.steps[i], samples[i], level)
    return found


def _timeline(step: Step, rows: Sequence[Sample], level: float | None) -> list[str]:
    every = max(1, len(rows) // _MOST_POINTS)
    good = [
        Point(s.scheduled_seconds, s.first_visible_seconds) for s in rows[::every] if s.good and s.first_visible_seconds
    ]
    until = max((s.scheduled_seconds for s in rows), default=1.0)
    dots = Curve(name="visible TTFT of each whole answer", points=good, colour=COLOURS[0], dots=True)
    marks = [
        (s.scheduled_seconds, _KINDS[s.kind], f"{s.kind} {s.detail} {s.message}") for s in rows if s.kind in _KINDS
    ]
    legend = ", ".join(f'<span style="color:{colour}">{kind.value}</span>' for kind, colour in _KINDS.items())
    return [
        f"<h2>Over time, at {step.load:g} {escape(_unit(step))} (seed {step.seed})</h2>",
        chart([dots], Axes(across="seconds since the run began", up="s", level=level, until=until)),
        f"<p>What went wrong: {len(marks)} of {len(rows)} ({legend})</p>",
        strip(marks[:_MOST_POINTS], until=until),
    ]
