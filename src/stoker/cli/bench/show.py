"""How a benchmark looks in a terminal."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stoker.cli import output

if TYPE_CHECKING:
    from stoker.bench.load.generator import Progress
    from stoker.bench.result import Result
    from stoker.bench.search import Taking
    from stoker.decide.measure.summary import Step

_COLUMNS = (
    *("LOAD", "SEED", "REQUESTS", "GOOD", "MET", "GOODPUT/s", "TOK/s", "TTFT", "VISIBLE p50", "p90", "p99"),
    *("TPOT p50", "E2E p50", "CACHED", "VERDICT"),
)


class Live:
    """One line that is written over, twice a second.

    Plain text and not a drawn table: drawing one takes ten milliseconds of the very loop that measures.
    """

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._wrote = False

    def tell(self, level: float, progress: "Progress") -> None:
        """Show how far a step is."""
        if not self._on:
            return
        recent = [sample.first_visible_seconds for sample in progress.recent if sample.first_visible_seconds]
        progress.recent.clear()
        first = f", visible TTFT {sum(recent) / len(recent) * 1000:.0f} ms" if recent else ""
        rate = progress.tokens / progress.seconds if progress.seconds else 0.0
        line = (
            f"at {level:g}: {progress.seconds:.0f} s, {progress.in_flight} in flight, {progress.ended} ended,"
            f" {progress.ended - progress.good} failed, {rate:.0f} tok/s{first}"
        )
        sys.stderr.write(f"\r{line:<110}")
        sys.stderr.flush()
        self._wrote = True

    def step(self, step: "Step") -> None:
        """Write the line of a finished step."""
        if self._wrote:
            sys.stderr.write(f"\r{'':<110}\r")
            self._wrote = False
        cells = dict(zip(_COLUMNS, _cells(step), strict=True))
        met = f" {cells['MET']} met the bar," if step.passed is not None else ""
        told = (
            f"at {cells['LOAD']} (seed {cells['SEED']}): {cells['REQUESTS']} requests, {cells['GOOD']} good,"
            f"{met} {cells['TOK/s']} tok/s {cells['VERDICT']}"
        )
        output.err.print(told, markup=False)


def _cells(step: "Step") -> tuple[str, ...]:
    from stoker.bench.report.page import verdict

    times, judged = step.times, step.passed is not None
    return (
        f"{step.load:g}",
        str(step.seed),
        str(step.measured),
        f"{1 - step.failed_share:.1%}",
        f"{step.attainment:.1%}" if judged else "-",
        f"{step.goodput_per_second:.2f}",
        f"{step.tokens.per_second:.0f}",
        _time(times.ttft.p50),
        _time(times.visible_ttft.p50),
        _time(times.visible_ttft.p90),
        _time(times.visible_ttft.p99) + ("" if step.p99_is_sure else "?"),
        _time(times.tpot.p50),
        _time(times.e2e.p50),
        f"{step.tokens.cached_share:.0%}",
        verdict(step),
    )


def _time(seconds: float) -> str:
    if not seconds:
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def result(found: "Result", taking: "Taking", *, out: Path | None, form: str) -> None:
    """Write a result to its folder and to the terminal."""
    from stoker.bench import result as results
    from stoker.bench.report.page import page

    if out is not None:
        results.write(out, found, taking.samples, page(found, taking.samples))
    if form:
        output.data(msgspec.to_builtins(found, str_keys=True), form)
        return
    output.table(_COLUMNS, [_cells(step) for step in found.steps])
    print()
    for step in found.steps[-1:]:
        _details(step)
    _classes(found)
    print(f"\n{found.verdict}" if found.verdict else "")
    for what in found.cannot_claim:
        print(f"this does not say {what}")
    for note in found.notes:
        print(f"note: {note}")
    if out is not None:
        print(f"written: {out / 'report.html'}, result.json, requests.jsonl")


def _details(step: "Step") -> None:
    """What the last step has besides."""
    times, tokens = step.times, step.tokens
    rows = [
        (name, *(_time(value) for value in (s.mean, s.p50, s.p90, s.p95, s.p99, s.most)))
        for name, s in (
            ("first byte", times.first_byte),
            ("first token", times.ttft),
            ("first visible token", times.visible_ttft),
            ("a token (TPOT)", times.tpot),
            ("gaps between reads", times.gap),
            ("end to end", times.e2e),
            ("send lag", times.send_lag),
            ("loop lag", times.loop_lag),
        )
    ]
    output.table(("TIMES, LAST STEP", "MEAN", "p50", "p90", "p95", "p99", "MOST"), rows)
    print(
        f"\n{tokens.per_second:.1f} output tokens/s in all, {tokens.per_second_per_user:.1f} for each user,"
        f" {step.in_flight:.1f} in flight; prompts p50 {tokens.prompt.p50:.0f}, p90 {tokens.prompt.p90:.0f};"
        f" {tokens.hidden_share:.0%} of the output hidden; cached {tokens.cached_share:.1%} as reported,"
        f" {tokens.script_cached_share:.1%} by the script; {tokens.per_read:.1f} tokens a read;"
        f" generator {step.cpu_microseconds_per_token:.0f} us of CPU a token;"
        f" warm-up {step.warm_seconds:.1f} s left out"
    )
    if tokens.estimated_requests:
        print(f"estimated: the server reported no usage for {tokens.estimated_requests} requests")
    if step.money is not None:
        print(
            f"{step.money.output_usd:.3g} US dollars per million output tokens, {step.money.all_usd:.3g} for all tokens"
        )
    for repair, count in step.repaired.items():
        print(f"{count} answers had to be read with patience: {repair}")


def _classes(found: "Result") -> None:
    print()
    counts: dict[str, int] = {}
    for step in found.steps:
        for kind, count in step.classes.items():
            counts[kind] = counts.get(kind, 0) + count
    output.table(
        ("CLASS", "REQUESTS", "WHAT FALLS INTO IT, THE FIRST THAT FITS"),
        [(kind, str(counts.get(kind, 0)), what) for kind, what in found.classes],
    )
    _wrong(found.steps)


def _wrong(steps: "Sequence[Step]") -> None:
    """Say what went wrong how often, and what the server said to the first of each."""
    details: dict[str, int] = {}
    said: dict[str, str] = {}
    for step in steps:
        for detail, count in step.details.items():
            details[detail] = details.get(detail, 0) + count
        said = step.said | said
    if details:
        print("\nwhat was no good answer:")
    for what, count in sorted(details.items(), key=lambda each: -each[1]):
        print(f"  {count} {what}" + (f": {said[what]}" if what in said else ""))


def sentence(steps: Sequence["Step"]) -> str:
    """Say what a plain run came to."""
    if not steps:
        return "nothing was measured"
    cut = "; interrupted: this is what was measured until then" if any(step.interrupted for step in steps) else ""
    if len(steps) > 1:
        return _of_runs(steps) + cut
    last = steps[-1]
    if last.late:
        return f"not measured: {last.late}{cut}"
    if last.passed is None:
        return f"{last.tokens.per_second:.0f} output tokens/s, {1 - last.failed_share:.1%} whole answers{cut}"
    judged = "met" if last.passed else "failed"
    return f"the bar was {judged}: {last.attainment:.1%} of {last.measured} scheduled requests met it{cut}"


def _of_runs(steps: Sequence["Step"]) -> str:
    """Say what several runs at one load came to; those that were late are counted apart."""
    runs = [step for step in steps if not step.late]
    late = f"; {len(steps) - len(runs)} of {len(steps)} runs were not measured" if len(runs) < len(steps) else ""
    if not runs:
        return f"not measured: {steps[-1].late}{late}"
    total = sum(step.measured for step in runs) or 1
    rates = [step.tokens.per_second for step in runs]
    span = f"{min(rates):.0f}-{max(rates):.0f} output tokens/s"
    if any(step.passed is None for step in runs):
        failed = sum(step.failed_share * step.measured for step in runs) / total
        return f"{span}, {1 - failed:.1%} whole answers in {len(runs)} runs{late}"
    met, passed = sum(step.met for step in runs), sum(bool(step.passed) for step in runs)
    return (
        f"the bar was met in {passed} of {len(runs)} runs: {met / total:.1%} of {total} scheduled requests met it,"
        f" {span}{late}"
    )
