"""An experiment as one page: the verdict first, then what it rests on, then how to repeat it."""

from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from stoker.bench.report.charts import COLOURS, Axes, Curve, Point, chart, fans, strip
from stoker.bench.report.others import Other
from stoker.bench.result import Result
from stoker.decide.measure.classes import Class
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Spread, Step

_MOST_POINTS: Final = 2000
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:1rem 0;font-size:14px}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}
h2{margin-top:2rem}small{color:#666}code{background:#8882;padding:.1rem .3rem;overflow-wrap:anywhere}
.verdict{font-size:1.2rem;border-left:5px solid #4269d0;padding:.4rem .9rem;background:#8881}
.axis{stroke:#888;fill:none}.bar{stroke:#c33;stroke-dasharray:5 4}.barname{fill:#c33}
@media (prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}text{fill:#ddd}}
"""
_KINDS: Final = {
    Class.ERROR: "#d62728",
    Class.TRUNCATED: "#ff7f0e",
    Class.TIMEOUT: "#9467bd",
    Class.REJECTED: "#8c564b",
    Class.TOOL_PARSE: "#e377c2",
    Class.EMPTY: "#17becf",
    Class.NOT_MEASURED: "#7f7f7f",
}


def page(result: Result, samples: Sequence[Sequence[Sample]], *, others: Sequence[Other] = ()) -> str:
    """Write the page."""
    asked = result.asked
    title = f"{asked.model} at {asked.url}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="verdict">{escape(result.verdict)}</p>', _claims(result)]
    parts += ["<h2>Steps</h2>", _steps(result.steps)]
    if len(result.steps) > 1 or others:
        parts += ["<h2>Latency over throughput</h2>", *_curves(result, others)]
    parts += ["<h2>Percentiles</h2>", *_fans(result)]
    if result.steps:
        parts += _timeline(result, samples)
    parts += ["<h2>How requests were counted</h2>", _classes(result), "<h2>Set-up</h2>", _setup(result)]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return head + "\n".join(parts) + "</html>\n"


def _claims(result: Result) -> str:
    bar = result.bar
    told = [f"bar: {bar.words}" if bar is not None else "no bar: nothing passes or fails"]
    told += [f"this does not say {what}" for what in result.cannot_claim]
    told += list(result.notes)
    return "<ul>" + "".join(f"<li>{escape(each)}" for each in told) + "</ul>"


_COLUMNS: Final = (
    *("load", "seed", "requests", "good", "goodput/s", "met", "tok/s"),
    *("TTFT p50", "visible p50", "p90", "p99", "TPOT p50", "cached", "verdict"),
)


def _steps(steps: Sequence[Step]) -> str:
    head = "".join(f"<th>{name}" for name in _COLUMNS)
    return f"<table><tr>{head}</tr>{''.join(_row(step) for step in steps)}</table>"


def _row(step: Step) -> str:
    times = step.times
    cells = (
        f"{step.load:g}",
        f"{step.seed}",
        f"{step.measured}",
        f"{1 - step.failed_share:.1%}",
        f"{step.goodput_per_second:.2f}",
        f"{step.attainment:.1%}",
        f"{step.tokens.per_second:.0f}",
        _ms(times.ttft.p50),
        _ms(times.visible_ttft.p50),
        _ms(times.visible_ttft.p90),
        _ms(times.visible_ttft.p99) + ("" if step.p99_is_sure else "?"),
        _ms(times.tpot.p50),
        f"{step.tokens.cached_share:.0%}",
    )
    return f"<tr>{''.join(f'<td class=n>{cell}' for cell in cells)}<td>{escape(verdict(step))}</tr>"


def verdict(step: Step) -> str:
    """Say in a word or two what came of a step."""
    if step.late:
        return f"not measured: {step.late}"
    if step.interrupted:
        return "interrupted"
    return {True: "pass", False: "fail", None: ""}[step.passed]


def _curves(result: Result, others: Sequence[Other]) -> list[str]:
    """Latency of each measured level over its throughput, with what others measured beside it."""
    steps = sorted((s for s in result.steps if not s.late), key=lambda s: (s.load, s.seed))
    limits = dict(result.bar.limits) if result.bar is not None else {}
    first = [
        _curve("visible TTFT p50", [(s.tokens.per_second, s.times.visible_ttft.p50) for s in steps], 0),
        _curve("visible TTFT p90", [(s.tokens.per_second, s.times.visible_ttft.p90) for s in steps], 1),
    ]
    pace = [_curve("TPOT p50", [(s.tokens.per_second, s.times.tpot.p50) for s in steps], 2)]
    pace += [_curve("TPOT p90", [(s.tokens.per_second, s.times.tpot.p90) for s in steps], 3)]
    for i, other in enumerate(others):
        rows = other.rows
        first.append(_curve(f"{other.name} TTFT p50", [(r.tokens_per_second, r.ttft_p50_seconds) for r in rows], 4 + i))
        pace.append(_curve(f"{other.name} TPOT p50", [(r.tokens_per_second, r.tpot_p50_seconds) for r in rows], 4 + i))
    across = "output tokens a second, all users together"
    return [
        chart(first, Axes(across=across, up="s", level=limits.get("visible_ttft"))),
        chart(pace, Axes(across=across, up="s a token", level=limits.get("tpot"))),
    ]


def _curve(name: str, points: Sequence[tuple[float, float]], colour: int) -> Curve:
    return Curve(name=name, points=[Point(*p) for p in sorted(points)], colour=COLOURS[colour % len(COLOURS)])


def _fans(result: Result) -> list[str]:
    names = [f"{step.load:g}" for step in result.steps]
    found = []
    for name, colour in (("visible_ttft", 0), ("tpot", 2), ("e2e", 4)):
        spreads: list[Spread] = [getattr(step.times, name) for step in result.steps]
        rows = [(s.p50, s.p90, s.p95, s.p99) for s in spreads]
        level = dict(result.bar.limits).get(name) if result.bar is not None else None
        axes = Axes(across=f"{name} p50 p90 p95 p99, at each level of load", up="s", level=level, names=names)
        found.append(fans(rows, axes, colour=COLOURS[colour]))
    return found


def _timeline(result: Result, samples: Sequence[Sequence[Sample]]) -> list[str]:
    """When each request of the last step began to answer, and when something went wrong."""
    rows = list(samples[-1]) if samples else []
    step = result.steps[-1]
    every = max(1, len(rows) // _MOST_POINTS)
    good = [
        Point(s.scheduled_seconds, s.first_visible_seconds) for s in rows[::every] if s.good and s.first_visible_seconds
    ]
    until = max((s.scheduled_seconds for s in rows), default=1.0)
    level = dict(result.bar.limits).get("visible_ttft") if result.bar is not None else None
    dots = Curve(name="visible TTFT of each request", points=good, colour=COLOURS[0], dots=True)
    marks = [
        (s.scheduled_seconds, _KINDS[s.kind], f"{s.kind} {s.detail} {s.message}") for s in rows if s.kind in _KINDS
    ]
    axes = Axes(across="seconds since the step began", up="s", level=level)
    legend = ", ".join(f'<span style="color:{colour}">{kind.value}</span>' for kind, colour in _KINDS.items())
    return [
        f"<h2>Over time, at {step.load:g} {escape(step.unit)}</h2>",
        chart([dots], axes),
        f"<p>What went wrong: {len(marks)} of {len(rows)} ({legend})</p>",
        strip(marks[:_MOST_POINTS], until=until),
    ]


def _classes(result: Result) -> str:
    last = result.steps[-1] if result.steps else None
    rows = []
    for kind, what in result.classes:
        count = sum(step.classes.get(kind, 0) for step in result.steps)
        now = last.classes.get(kind, 0) if last is not None else 0
        rows.append(f"<tr><td>{kind}<td>{escape(what)}<td class=n>{now}<td class=n>{count}</tr>")
    head = "<tr><th>class<th>what falls into it, the first that fits<th>last step<th>all steps</tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _setup(result: Result) -> str:
    pairs = {"at": result.at, **msgspec.to_builtins(result.setup), **msgspec.to_builtins(result.asked)}
    rows = "".join(f"<tr><td>{escape(name)}<td>{escape(str(value))}</tr>" for name, value in pairs.items())
    return f"<p>Again: <code>{escape(result.command)}</code></p><table>{rows}</table>"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}&nbsp;ms" if seconds < 10 else f"{seconds:.1f}&nbsp;s"
