"""From an engine's metric names to the fleet's.

A row lists what a fleet name is read from, newest engine version first; a candidate counts only when all of its
series are on the page. What is absent from the page is absent from the answer: a missing series is never a zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoker.wire.exposition import scan


@dataclass(frozen=True, slots=True)
class Row:
    """One fleet name. Samples of one series (ranks, labels) are added, or with ``largest`` the largest counts."""

    fleet: str
    candidates: tuple[tuple[str, ...], ...]
    largest: bool = False
    expected: bool = True


def row(fleet: str, *candidates: str, largest: bool = False, expected: bool = True) -> Row:
    """Read a fleet name from one series; several: from whichever is there, newest first. ``a+b``: their sum."""
    return Row(fleet, tuple(tuple(c.split("+")) for c in candidates), largest=largest, expected=expected)


def histogram(fleet: str, *candidates: str) -> tuple[Row, Row]:
    """Read sum and count of a histogram. Buckets differ between engines and are never merged."""
    parts = ("_sum", "_count")
    rows = [row(fleet + part, *(c + part for c in candidates), expected=False) for part in parts]
    return rows[0], rows[1]


def read(rows: Sequence[Row], page: str) -> Mapping[str, float]:
    """Read a page."""
    wanted = {name for line in rows for names in line.candidates for name in names}
    found: dict[str, list[float]] = {}
    for sample in scan(page, wanted):
        found.setdefault(sample.name, []).append(sample.value)
    answer: dict[str, float] = {}
    for line in rows:
        names = next((names for names in line.candidates if all(name in found for name in names)), None)
        if names is not None:
            each = [max(found[name]) if line.largest else sum(found[name]) for name in names]
            answer[line.fleet] = sum(each)
    return answer


def expected(rows: Sequence[Row]) -> tuple[str, ...]:
    """Name what should be on the page."""
    return tuple(line.fleet for line in rows if line.expected)
