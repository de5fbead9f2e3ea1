"""Curves, fans, points and strips as SVG: text that any browser draws, without a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from typing import Final, NamedTuple

WIDTH: Final = 720
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 34, 44
_FAN: Final = 34.0
COLOURS: Final = ("#4269d0", "#ff725c", "#3ca951", "#efb118", "#a463f2", "#6cc5b0", "#97bbf5", "#9c6b4e")


class Point(NamedTuple):
    """One point of a curve."""

    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A named line, or points where ``dots``."""

    name: str
    points: Sequence[Point]
    colour: str
    dots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A value with its interval."""

    low: float
    at: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What the two sides mean. ``level``: a bar, drawn across; ``band``: an interval, drawn upward."""

    across: str
    up: str
    level: float | None = None
    band: Band | None = None
    until: float = 0.0  # the lower side reaches at least so far
    names: Sequence[str] = ()  # of the places 0, 1, 2, … where the lower side has no scale


class Frame:
    """Places values on the picture."""

    def __init__(self, curves: Sequence[Curve], axes: Axes, *, height: int = HEIGHT) -> None:
        xs = [point.x for curve in curves for point in curve.points] or [1.0]
        ys = [point.y for curve in curves for point in curve.points] or [1.0]
        self.axes = axes
        self.height = height
        self.left, self.right = (
            (min(0.0, *xs), max(axes.until, *xs)) if not axes.names else (-0.5, len(axes.names) - 0.5)
        )
        if self.right <= self.left:
            self.right = self.left + 1
        top = max(ys)
        if axes.level is not None and axes.level < 3 * top:
            top = max(top, axes.level)
        self.top = top * 1.06 or 1.0

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Give the place of a value."""
        wide, high = WIDTH - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        across = _LEFT + (x - self.left) / (self.right - self.left) * wide
        return across, _TOP + (1 - min(y, self.top) / self.top) * high

    def sides(self) -> list[str]:
        """Draw the axes with their figures."""
        (x0, y0), (x1, y1) = self.at(self.left, 0), self.at(self.right, self.top)
        found = [f'<path d="M{x0:.1f},{y1:.1f} L{x0:.1f},{y0:.1f} L{x1:.1f},{y0:.1f}" class="axis"/>']
        found += [
            f'<text x="{x0 - 6:.1f}" y="{self.at(0, y)[1] + 4:.1f}" text-anchor="end">{y:g}</text>'
            for y in ticks(self.top)
        ]
        names = [(float(i), name) for i, name in enumerate(self.axes.names)]
        names = names or [(x, f"{x:g}") for x in ticks(self.right)]
        for x, name in names:
            label = escape(name)
            found.append(f'<text x="{self.at(x, 0)[0]:.1f}" y="{y0 + 16:.1f}" text-anchor="middle">{label}</text>')
        found.append(
            f'<text x="{(x0 + x1) / 2:.0f}" y="{y0 + 34:.1f}" text-anchor="middle">{escape(self.axes.across)}</text>'
        )
        found.append(f'<text x="{x0 + 6:.1f}" y="{y1 + 4:.1f}">{escape(self.axes.up)}</text>')
        if self.axes.band is not None:
            found += self._interval(self.axes.band)
        if self.axes.level is not None and self.axes.level <= self.top:
            y = self.at(0, self.axes.level)[1]
            found.append(f'<path d="M{x0:.1f},{y:.1f} L{x1:.1f},{y:.1f}" class="bar"/>')
            found.append(f'<text x="{x1:.1f}" y="{y - 4:.1f}" text-anchor="end" class="barname">bar</text>')
        return found

    def _inside(self, x: float) -> float:
        return min(max(x, self.left), self.right)

    def _interval(self, band: Band) -> list[str]:
        low, top = self.at(self._inside(band.low), self.top)
        high, bottom = self.at(self._inside(band.high), 0)
        at = self.at(self._inside(band.at), 0)[0]
        return [
            f'<rect x="{low:.1f}" y="{top:.1f}" width="{high - low:.1f}" height="{bottom - top:.1f}" class="band"/>',
            f'<path d="M{at:.1f},{top:.1f} V{bottom:.1f}" class="bar"/>',
            f'<text x="{at:.1f}" y="{top - 4:.1f}" text-anchor="middle">{band.at:.3g}</text>',
        ]


def ticks(most: float) -> list[float]:
    """Give three to six round figures from 0 to the most."""
    size = 10.0 ** floor(log10(most / 4)) if most > 0 else 1.0
    step = next((size * part for part in (1, 2, 2.5, 5, 10) if most / (size * part) < 6), size)
    return [float(f"{i * step:.6g}") for i in range(int(most / step) + 1)]


def chart(curves: Sequence[Curve], axes: Axes) -> str:
    """Draw curves."""
    frame = Frame(curves, axes)
    drawn, named = frame.sides(), 0
    for curve in curves:
        places = [frame.at(point.x, point.y) for point in curve.points]
        if curve.dots:
            drawn += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{curve.colour}" opacity=".55"/>' for x, y in places
            ]
        elif places:
            path = " L".join(f"{x:.1f},{y:.1f}" for x, y in places)
            drawn.append(f'<path d="M{path}" stroke="{curve.colour}" stroke-width="2" fill="none"/>')
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{curve.colour}"/>' for x, y in places]
        if curve.name:
            drawn.append(_named(curve, named))
            named += 1
    return _picture(drawn, HEIGHT)


def fans(rows: Sequence[Sequence[float]], axes: Axes, *, colour: str) -> str:
    """Draw a fan for each place: p50, p90, p95 and p99, the darker the more requests are below."""
    curve = Curve(name="", colour=colour, points=[Point(i, max(row)) for i, row in enumerate(rows) if row])
    frame = Frame([curve], axes)
    drawn = frame.sides()
    wide = min(_FAN, 0.8 * (WIDTH - _LEFT - _RIGHT) / max(1, len(rows)))
    for i, row in enumerate(rows):
        for part, value, opacity in zip((1.0, 0.76, 0.53, 1.0), reversed(row), (0.2, 0.3, 0.45, 0.9), strict=True):
            width = wide * part
            x, y = frame.at(i, value)
            base = frame.at(i, 0)[1]
            if value is row[0]:
                drawn.append(
                    f'<path d="M{x - width / 2:.1f},{y:.1f} h{width:.1f}" stroke="{colour}" stroke-width="3"/>'
                )
            else:
                drawn.append(
                    f'<rect x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, base - y):.1f}"'
                    f' fill="{colour}" opacity="{opacity}"/>'
                )
    return _picture(drawn, HEIGHT)


def strip(marks: Sequence[tuple[float, str, str]], *, until: float) -> str:
    """Draw when what went wrong: a place in time, its colour, its words."""
    wide = WIDTH - _LEFT - _RIGHT
    drawn = [f'<rect x="{_LEFT}" y="4" width="{wide}" height="20" fill="#8882"/>']
    for at, colour, words in marks:
        x = _LEFT + at / (until or 1.0) * wide
        drawn.append(
            f'<rect x="{x:.1f}" y="4" width="2" height="20" fill="{colour}"><title>{escape(words)}</title></rect>'
        )
    return _picture(drawn, 30)


def _named(curve: Curve, place: int) -> str:
    x = _LEFT + 70 + (place % 3) * 200
    return f'<text x="{x}" y="{12 + place // 3 * 15}" style="fill:{curve.colour}">{escape(curve.name)}</text>'


def _picture(drawn: Sequence[str], height: int) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" font-size="12" role="img">{"".join(drawn)}</svg>'
