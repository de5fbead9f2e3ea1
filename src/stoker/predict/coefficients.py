"""The figures that formulas cannot give: fitted or stated, each with where it holds and where it comes from.

They lie in a versioned data file and come in as values. A residual is what was logged minus what was predicted.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid, nearest

GIB: Final = 2**30


class Residual(msgspec.Struct, frozen=True, kw_only=True):
    """How far logged KV caches lay from predicted ones, in GiB. ``cases`` 0: stated, not measured."""

    low_gib: float
    middle_gib: float
    high_gib: float
    cases: int = 0


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine takes besides weights and cache, from version ``since`` up to but without ``until``."""

    engine: str
    since: str
    until: str
    source: str
    residual: Residual
    utilization: float  # the engine's default share of the card
    sampler_bytes: float = 0.0  # a logit of a sequence takes these besides its own element
    forward_hidden: float = 0.0  # widths of the hidden state that a dense layer keeps at once
    non_torch_gib: float = 0.0  # on one card
    non_torch_many_gib: float = 0.0  # with collectives
    non_torch_stage_gib: float = 0.0  # with pipeline stages alone
    graphs_gib: float = 0.0
    graphs_layer_gib: float = 0.0
    graphs_counted: bool = False  # inside the share; otherwise they come on top of it
    graphs_low_gib: float = 0.0
    graphs_high_gib: float = 0.0
    learned_gib: float = 0.0  # what own starts took beyond all of this
    learned_cases: int = 0


class Default(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM chooses on cards of at least this memory, for want of flags."""

    card_gib: float
    batch_tokens: int
    sequences: int
    source: str
    without: str = ""  # cards whose name contains this word are left out


class LongRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a service of weeks needs besides what a start needs."""

    fragmentation_share: float  # of the card
    source: str


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What starts on one card took beyond the formulas. ``version``: a release such as 0.19; empty: not told."""

    engine: str
    version: str
    gpu: str
    extra_gib: float
    cases: int
    spread: Residual | None = None  # of the cases around it, when there are enough


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file, and what was learned since."""

    version: int
    date: str
    memory: tuple[Memory, ...]
    defaults: tuple[Default, ...]
    long_run: LongRun
    learned: tuple[Learned, ...] = ()


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The coefficients of time, and how far off they were for models that the fit had not seen."""

    version: int
    source: str
    rows: int
    coefficients: dict[str, float]
    tpot_low: float  # 5th and 95th percentile of measured over predicted
    tpot_high: float
    ttft_low: float
    ttft_high: float
    prompt_low: float  # where the rows lie; outside it is extrapolation
    prompt_high: float
    batch_high: float
    ranks_high: int
    simulation: dict[str, float] = {}  # what calibrates simulated times: see timing/rehearsed.py


def number(version: str) -> tuple[int, ...]:
    """A version as comparable numbers; raises Invalid when it has none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if found is None:
        raise Invalid(Fault(message=f"'{version}' is no version", hint="write it as in vllm@0.21.0"))
    return tuple(int(part) for part in found[1].split("."))


def memory(table: Coefficients, engine: str, version: str) -> Memory:
    """The row of an engine's version; without a version the newest. Raises Invalid for an unknown engine."""
    rows = [row for row in table.memory if row.engine == engine]
    if not rows:
        known: Sequence[str] = sorted({row.engine for row in table.memory})
        hint = nearest(engine, known) or f"known: {', '.join(known)}"
        raise Invalid(Fault(message=f"the planner knows no engine '{engine}'", field="--engine", hint=hint))
    if not version:
        return max(rows, key=lambda row: number(row.since))
    asked = number(version)
    return next(
        (r for r in rows if number(r.since) <= asked and (not r.until or asked < number(r.until))),
        max(rows, key=lambda row: number(row.since)),
    )


def learned(table: Coefficients, engine: str, version: str, gpu: str) -> Learned | None:
    """What own starts taught about an engine on a card: of the same release, or of any when none is asked for."""
    asked = ".".join(str(part) for part in number(version)[:2]) if version else ""
    found = [each for each in table.learned if each.engine == engine and each.gpu == gpu]
    exact = [each for each in found if each.version == asked or not each.version]
    return next(iter(exact if asked else sorted(found, key=lambda each: -each.cases)), None)
