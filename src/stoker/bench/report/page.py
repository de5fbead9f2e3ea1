"""An experiment as one page: the verdict first, then what it rests on, then how to repeat it."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from stoker.bench.report import pictures
from stoker.bench.report.others import Other
from stoker.bench.result import Result
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Step

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:1rem 0;font-size:14px}td,th{padding:.2rem .6rem;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}
h2{margin-top:2rem}small{color:#666}code{background:#8882;padding:.1rem .3rem;overflow-wrap:anywhere}
.verdict{font-size:1.2rem;border-left:5px solid #4269d0;padding:.4rem .9rem;background:#8881}
.axis{stroke:#888;fill:none}.bar{stroke:#c33;stroke-dasharray:5 4}.barname{fill:#c33}.band{fill:#4269d0;opacity:.15}
@media (prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}text{fill:#ddd}}
"""


def page(result: Result, samples: Sequence[Sequence[Sample]], *, others: Sequence[Other] = ()) -> str:
    """Write the page."""
    asked = result.asked
    title = f"{asked.model} at {asked.url}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="verdict">{escape(result.verdict)}</p>', _claims(result)]
    parts += ["<h2>Steps</h2>", _steps(result.steps)]
    parts += pictures.attained(result) + pictures.curves(result, others)
    parts += pictures.percentiles(result) + pictures.timelines(result, samples)
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


def _classes(result: Result) -> str:
    last = result.steps[-1] if result.steps else None
    rows = []
    for kind, what in result.classes:
        count = sum(step.classes.get(kind, 0) for step in result.steps)
        now = last.classes.get(kind, 0) if last is not None else 0
        rows.append(f"<tr><td>{kind}<td>{escape(what)}<td class=n>{now}<td class=n>{count}</tr>")
    head = "<tr><th>class<th>what falls into it, the first that fits<th>last step<th>all steps</tr>"
    return f"<table>{head}{''.join(rows)}</table>{_wrong(result.steps)}"


def _wrong(steps: Sequence[Step]) -> str:
    """Say what went wrong how often, and what the server said to the first of each."""
    counts: Counter[str] = Counter()
    said: dict[str, str] = {}
    for step in steps:
        counts.update(step.details)
        said = step.said | said
    rows = [
        f"<tr><td class=n>{n}<td>{escape(what)}<td>{escape(said.get(what, ''))}</tr>"
        for what, n in counts.most_common()
    ]
    head = "<tr><th>requests<th>what was no good answer<th>what the server said to the first</tr>"
    return f"<table>{head}{''.join(rows)}</table>" if rows else ""


def _setup(result: Result) -> str:
    pairs = {"at": result.at, **msgspec.to_builtins(result.setup), **msgspec.to_builtins(result.asked)}
    rows = "".join(f"<tr><td>{escape(name)}<td>{escape(str(value))}</tr>" for name, value in pairs.items())
    return f"<p>Again: <code>{escape(result.command)}</code></p><table>{rows}</table>"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}&nbsp;ms" if seconds < 10 else f"{seconds:.1f}&nbsp;s"
