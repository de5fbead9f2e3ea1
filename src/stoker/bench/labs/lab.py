"""What an experiment is, and how its report is written. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from stoker.bench.result import Setup
from stoker.decide.measure.summary import Step

Rows = Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One thing that is measured: a label, a load, and in what it differs."""

    label: str
    concurrency: int
    head_last: bool = False
    second: bool = False  # of the second model


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """One experiment. ``read`` says in sentences what the numbers show, the surprise first."""

    name: str
    question: str
    method: str
    arms: tuple[Arm, ...]
    read: Callable[[Sequence[Step]], tuple[str, ...]]
    two_models: bool = False
    head_tokens: int = 0  # of a part that all requests share, before lengths are divided


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment came to."""

    lab: str
    question: str
    method: str
    setup: Setup
    target: str
    usd_per_hour: float
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    surprise: tuple[str, ...]
    reproduce: str
    more: str = ""  # Markdown: a post-mortem, a runbook


COLUMNS: Final = (
    *("arm", "in flight", "requests", "good", "tokens/s", "visible TTFT p50", "p90", "TPOT p50", "cached"),
    "$ per million output tokens",
)


def row(arm: Arm, step: Step) -> tuple[str, ...]:
    """Write one arm."""
    times = step.times
    return (
        arm.label,
        f"{step.in_flight:.1f}",
        f"{step.measured}",
        f"{1 - step.failed_share:.1%}",
        f"{step.tokens.per_second:.1f}",
        f"{times.visible_ttft.p50 * 1000:.0f} ms",
        f"{times.visible_ttft.p90 * 1000:.0f} ms",
        f"{times.tpot.p50 * 1000:.1f} ms",
        f"{step.tokens.cached_share:.0%}",
        f"{step.money.output_usd:.3g}" if step.money is not None else "no price given",
    )


def markdown(report: Report) -> str:
    """Write the report."""
    setup = report.setup
    lines = [
        f"# Lab: {report.lab}",
        f"**Question.** {report.question}",
        f"**Set-up.** {report.target}; measured with stoker {setup.stoker}, Python {setup.python}, on {setup.machine},"
        f" {setup.cores} cores; "
        + (f"${report.usd_per_hour:g} an hour." if report.usd_per_hour else "no price given."),
        f"**Method.** {report.method}",
        "**Numbers.**",
        _table(report.columns, report.rows),
        "**Surprise.** " + " ".join(report.surprise),
        f"**Reproduce.** `{report.reproduce}`",
    ]
    return "\n\n".join([*lines, *([report.more] if report.more else [])]) + "\n"


def _table(columns: Sequence[str], rows: Rows) -> str:
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    return "\n".join([head, *(f"| {' | '.join(cells)} |" for cells in rows)])
