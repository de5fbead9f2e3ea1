"""Read a Prometheus text page: one regular-expression scan that keeps only the series that are asked for.

The usual parser takes 25 ms for a page of vLLM's, which is too long for a loop that serves others; this takes a
fraction of one.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_SAMPLE: Final = re.compile(
    r"""^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(?P<value>[^\s]+)""",
    re.MULTILINE,
)
_LABEL: Final = re.compile(r"""([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)\"""")
_ESCAPES: Final = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_ESCAPE: Final = re.compile(r"\\[\\\"n]")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def scan(page: str, wanted: Collection[str] | None = None) -> Iterator[Sample]:
    """Yield the samples whose name is wanted (all, when None). A line that is no sample is passed over."""
    for match in _SAMPLE.finditer(page):
        name = match["name"]
        if wanted is not None and name not in wanted:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        yield Sample(name, value, _labels(match["labels"]) if match["labels"] else {})


def _labels(text: str) -> dict[str, str]:
    return {name: _ESCAPE.sub(lambda m: _ESCAPES[m[0]], value) for name, value in _LABEL.findall(text)}
