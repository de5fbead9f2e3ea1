"""A search's choice as one page: memory as bars, latency over throughput, cost over use. All of it is in the file."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from stoker.cli.plan.found import Story
from stoker.decide.goodput import capacity
from stoker.decide.goodput import fleet as fleets
from stoker.decide.goodput.search import Option
from stoker.predict.batching.score import Score

_WIDTH, _HEIGHT, _EDGE = 640, 300, 56
_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
_GIB = 2**30
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:left}
svg{max-width:100%;height:auto}h2{margin-top:2rem}small{color:#666}
@media (prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}text{fill:#ddd}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A curve with its name; ``bar``: a level that it should stay below."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


def page(story: Story) -> str:
    """Write the page of the chosen configuration."""
    best = story.best
    body = [f"<h1>{escape(story.model)} for {escape(story.wish.wanted.profile.name)}</h1>", _load(story)]
    body += ["<h2>Configurations</h2>", _options(story)]
    if best is not None:
        runs = capacity.curve(
            best.fleet if best.fleet.engines == 1 else fleets.larger(best.fleet, 1),
            story.wish.wanted.profile,
            story.wish.wanted.slo,
            upto=max(1.0, best.each / fleets.lanes(best.candidate.plan)),
        )
        body += ["<h2>Memory of one card</h2>", _memory(best)]
        body += ["<h2>Latency over throughput, one engine</h2>", _latency(runs, story)]
        body += ["<h2>Price of a million output tokens over use</h2>", _cost(story)]
    title = f"<title>Plan of {escape(story.model)}</title>"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8">{title}<style>{_STYLE}</style>'
    return head + "\n".join(body) + "</html>\n"


def _load(story: Story) -> str:
    wish, wanted = story.wish, story.wish.wanted
    slo = wanted.slo
    return (
        f"<p>{wanted.in_flight:.1f} requests in flight: {escape(wish.why)}.<br>9 of 10 see the first word within"
        f" {slo.visible_ttft_p90_seconds:g} s and read {1 / slo.tpot_p90_seconds:g} tokens a second."
        f"<br><small>{escape(wanted.profile.source)}</small></p>"
    )


def _options(story: Story) -> str:
    head = "<tr><th>place<th>configuration<th>replicas<th>cards<th>band<th>$/h<th>TTFT p90<th>TPOT p90</tr>"
    rows = [_row(option) for option in (*story.result.options, *story.result.unpriced)]
    return f"<table>{head}{''.join(rows)}</table>"


def _row(option: Option) -> str:
    proof = option.proof
    cells = (
        str(option.place),
        escape(option.candidate.label) + (" <small>extrapolated</small>" if option.extrapolated else ""),
        str(option.replicas),
        str(option.cards),
        f"{option.cards_low} to {option.cards_high}",
        f"{option.usd:.2f}" if option.usd is not None else "-",
        f"{proof.visible_ttft.p90:.2f} s" if proof else "-",
        f"{proof.tpot.p90 * 1e3:.0f} ms" if proof else "-",
    )
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells) + "</tr>"


def _memory(option: Option) -> str:
    """One bar that is the card, a part a term."""
    budget = option.candidate.plan.budget
    parts, legend, left = [], [], 0.0
    for i, term in enumerate(budget.terms):
        colour = _COLOURS[i % len(_COLOURS)]
        width = max(0.0, term.size_bytes / budget.card_bytes * _WIDTH)
        told = f"{escape(term.name)}: {term.size_bytes / _GIB:.2f} GiB"
        parts.append(f'<rect x="{left:.1f}" y="0" width="{width:.1f}" height="46" fill="{colour}"><title>{told}</title>'
                     "</rect>")  # fmt: skip
        x, y = 8 + (i % 3) * (_WIDTH / 3), 74 + (i // 3) * 22
        legend.append(f'<rect x="{x:.0f}" y="{y - 11}" width="12" height="12" fill="{colour}"/>'
                      f'<text x="{x + 18:.0f}" y="{y}">{told}</text>')  # fmt: skip
        left += width
    height = 74 + (len(budget.terms) // 3 + 1) * 22
    return f'<svg viewBox="0 0 {_WIDTH} {height}" font-size="13">{"".join(parts + legend)}</svg>'


def _latency(runs: Sequence[Score], story: Story) -> str:
    slo = story.wish.wanted.slo
    rate = [run.output_tokens_per_second for run in runs]
    lines = [
        _Line(
            name="visible TTFT p90, as a part of its bar",
            points=[
                (x, run.visible_ttft.p90 / slo.visible_ttft_p90_seconds) for x, run in zip(rate, runs, strict=True)
            ],
            colour=_COLOURS[0],
        ),
        _Line(
            name="TPOT p90, as a part of its bar",
            points=[(x, run.tpot.p90 / slo.tpot_p90_seconds) for x, run in zip(rate, runs, strict=True)],
            colour=_COLOURS[2],
        ),
    ]
    return _chart(lines, across="output tokens a second", most=2.0, level=1.0)


def _cost(story: Story) -> str:
    money = story.money
    if money is None:
        return "<p>The card has no price.</p>"
    full = money.at[-1].output_usd
    uses = [i / 20 for i in range(2, 21)]
    lines = [_Line(name="here", points=[(use, full / use) for use in uses], colour=_COLOURS[0])]
    for i, each in enumerate(money.against):
        level = each.hosted.output_usd
        points = [(use, level) for use in uses]
        lines.append(_Line(name=each.hosted.name, points=points, colour=_COLOURS[(i + 1) % len(_COLOURS)]))
    return _chart(lines, across="use of the cards", most=full * 10, level=None)


def _chart(lines: Sequence[_Line], *, across: str, most: float, level: float | None) -> str:
    """Curves with axes; what is above ``most`` is cut."""
    right = max((x for line in lines for x, _ in line.points), default=1.0) or 1.0
    top = min(most, max((y for line in lines for _, y in line.points), default=1.0) * 1.05) or 1.0
    wide, high = _WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE

    def at(x: float, y: float) -> str:
        return f"{_EDGE + x / right * wide:.1f},{_EDGE + (1 - min(y, top) / top) * high:.1f}"

    drawn = [f'<path d="M{at(0, top)} L{at(0, 0)} L{at(right, 0)}" stroke="#888" fill="none"/>']
    for i in range(5):
        x, y = right * i / 4, top * i / 4
        bottom, side = at(x, 0).split(","), at(0, y).split(",")
        drawn.append(f'<text x="{bottom[0]}" y="{_HEIGHT - _EDGE + 18}" text-anchor="middle">{x:.3g}</text>')
        drawn.append(f'<text x="{_EDGE - 6}" y="{side[1]}" text-anchor="end">{y:.3g}</text>')
    if level is not None and level <= top:
        drawn.append(f'<path d="M{at(0, level)} L{at(right, level)}" stroke="#888" stroke-dasharray="5 4"/>')
    for i, line in enumerate(lines):
        points = " L".join(at(x, y) for x, y in line.points)
        drawn.append(f'<path d="M{points}" stroke="{line.colour}" stroke-width="2" fill="none"/>')
        drawn.append(f'<text x="{_EDGE + 10}" y="{18 + i * 17}" style="fill:{line.colour}">{escape(line.name)}</text>')
    drawn.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(across)}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="12">{"".join(drawn)}</svg>'
