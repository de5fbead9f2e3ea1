"""What can an endpoint take, and which of two takes more? Runs, in the order that the statistics ask for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from stoker.base.errors import Fault, Invalid, nearest
from stoker.bench.plan import Unit
from stoker.bench.step import Bench
from stoker.decide.measure import ramp, versus
from stoker.decide.measure.bar import Bar
from stoker.decide.measure.capacity import Capacity, Run, Verdict, capacity
from stoker.decide.measure.ramp import Seen
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Step, summarise
from stoker.decide.measure.versus import Arm, Difference

_EXTENSIONS: Final = 2
METRICS: Final[dict[str, Callable[[Step], float]]] = {
    "goodput": lambda step: step.goodput_per_second,
    "requests": lambda step: step.requests_per_second,
    "tokens": lambda step: step.tokens.per_second,
    "ttft_p50": lambda step: step.times.ttft.p50,
    "visible_ttft_p50": lambda step: step.times.visible_ttft.p50,
    "visible_ttft_p90": lambda step: step.times.visible_ttft.p90,
    "tpot_p50": lambda step: step.times.tpot.p50,
    "tpot_p90": lambda step: step.times.tpot.p90,
    "e2e_p50": lambda step: step.times.e2e.p50,
    "e2e_p90": lambda step: step.times.e2e.p90,
}


@dataclass(slots=True)
class Taking:
    """Steps as they come, with their requests."""

    steps: list[Step] = field(default_factory=list)
    samples: list[Sequence[Sample]] = field(default_factory=list)
    usd_per_hour: float = 0.0
    told: Callable[[Step], None] = lambda _step: None

    @property
    def interrupted(self) -> bool:
        """Whether somebody asked to end."""
        return any(step.interrupted for step in self.steps)

    def take(self, bench: Bench, level: float, seed: int) -> Step:
        """Run a step and keep what came of it."""
        taken = bench.run(level, seed)
        step = summarise(taken, bench.bar, usd_per_hour=self.usd_per_hour)
        self.steps.append(step)
        self.samples.append(taken.samples)
        self.told(step)
        return step


def climb(bench: Bench, taking: Taking, *, start: float, seed: int) -> list[Seen]:
    """Ramp until two levels fail."""
    whole = bench.plan.unit is not Unit.RATE
    seen: list[Seen] = []
    while (level := ramp.following(seen, start=start, whole=whole)) is not None:
        step = taking.take(bench, level, seed)
        if step.interrupted:
            break
        seen.append(Seen(level, step.passed))
    return seen


def confirm(bench: Bench, taking: Taking, *, failed: float, seeds: Sequence[int], bar: Bar) -> Capacity:
    """Run the levels around the one that failed, with the same seeds each, and say where the bar is just met."""
    whole = bench.plan.unit is not Unit.RATE
    at = ramp.levels(failed, whole=whole)
    runs = _runs(bench, taking, at, seeds)
    found = capacity(runs, quantile=bar.share, failed_share=bar.error_rate)
    for _ in range(_EXTENSIONS):
        more = _beyond(found, at, whole=whole)
        if more is None or taking.interrupted:
            break
        at = sorted([*at, more])
        runs += _runs(bench, taking, [more], seeds)
        found = capacity(runs, quantile=bar.share, failed_share=bar.error_rate)
    return found


def _beyond(found: Capacity, at: Sequence[float], *, whole: bool) -> float | None:
    if found.verdict is Verdict.AT_LEAST:
        return ramp.higher(at[-1], whole=whole)
    return ramp.lower(at[0], whole=whole) if found.verdict is Verdict.BELOW else None


def _runs(bench: Bench, taking: Taking, at: Sequence[float], seeds: Sequence[int]) -> list[Run]:
    """Run each level with each seed; what was not measured is tried once more, and is left out if that fails too."""
    runs = []
    for level, seed in ramp.order(at, seeds, rng=Random(len(taking.steps))):  # noqa: S311 -- an order, no secret
        step = taking.take(bench, level, seed)
        if step.late and not step.interrupted:
            step = taking.take(bench, level, seed)
        if step.interrupted:
            break
        if not step.late:
            failed = round(step.failed_share * step.measured) - step.given_up
            runs.append(Run(level=level, seed=seed, met=step.met, total=step.measured, failed=failed))
    return runs


def told(found: Capacity, bar: Bar, unit: Unit, *, window_seconds: float) -> str:
    """Say it in a sentence, and no more than was found."""
    what = unit.words
    if found.verdict is Verdict.CAPACITY:
        runs = f"{found.seeds} runs of {window_seconds:g} s at {found.levels} levels"
        return (
            f"capacity {found.value:.3g} {what} (95 % CI {found.low:.3g}-{found.high:.3g}; {runs}; {bar.words});"
            f" plan with {found.low:.3g}"
        )
    if found.verdict is Verdict.AT_LEAST:
        return f"capacity is at least {found.value:.3g} {what}: the highest level still met the bar ({bar.words})"
    if found.verdict is Verdict.BELOW:
        return f"capacity is below {found.value:.3g} {what}: the lowest level failed the bar ({bar.words})"
    return f"too few runs were measured to say anything: {found.levels} levels, {found.seeds} seeds"


def quickly(seen: Sequence[Seen], bar: Bar, unit: Unit) -> str:
    """Say what a single ramp shows."""
    found, what = ramp.around(seen), unit.words
    if not found.passed:
        least = min((step.level for step in seen), default=0.0)
        return f"no level met the bar, the lowest was {least:.3g} {what} ({bar.words})"
    if not found.failed:
        return f"{found.passed:.3g} {what} met the bar, and no level above it was measured ({bar.words})"
    return f"{found.passed:.3g} {what} met the bar once, {found.failed:.3g} did not ({bar.words})"


QUICK_CANNOT: Final = (
    "a capacity: one run at each level passes or fails by chance as well",
    "an interval, or a figure to plan with",
    "that a change made it better or worse: compare runs on the same seeds",
)


def metric(name: str) -> Callable[[Step], float]:
    """Find what is compared. Raises Invalid with the nearest."""
    found = METRICS.get(name)
    if found is None:
        hint = nearest(name, list(METRICS)) or f"one of {', '.join(METRICS)}"
        raise Invalid(Fault(message=f"there is no metric '{name}'", field="--metric", hint=hint))
    return found


def arms(steps: Sequence[Step], name: str) -> list[Arm]:
    """Make one side of a comparison of its steps. Raises Invalid."""
    value, found = metric(name), []
    for step in steps:
        if value(step) <= 0:
            raise Invalid(Fault(message=f"the run with seed {step.seed} has no {name} to compare", hint="no answers?"))
        # Goodput counts what came too late by itself; a time of whole answers would leave the slowest out unsaid.
        slow = step.given_up / max(1, step.measured) if name == "goodput" else 0.0
        found.append(Arm(seed=step.seed, value=value(step), failed=step.failed_share - slow, late=bool(step.late)))
    return found


def both(sides: tuple[Bench, Bench], taking: tuple[Taking, Taking], *, level: float, seeds: Sequence[int]) -> None:
    """Run A and B in turn on the same seeds: A B, B A, A B and so on."""
    for side, seed in versus.order(list(seeds)):
        at = 0 if side == "A" else 1
        step = taking[at].take(sides[at], level, seed)
        if step.late and not step.interrupted:  # once more; the late one is forgotten
            taking[at].steps.pop()
            taking[at].samples.pop()
            step = taking[at].take(sides[at], level, seed)
        if step.interrupted:
            return


def difference(
    a: Sequence[Arm],
    b: Sequence[Arm],
    *,
    settings: tuple[dict[str, str], dict[str, str]],
    about: str,
    errors_said: bool = False,
) -> Difference:
    """Compare two sides. Raises Invalid where they must not be compared."""
    refused = versus.refusals(a, b, settings=settings, about=about, errors_said=errors_said)
    if refused:
        hint = "--about names one setting, --errors-differ says that failures do"
        raise Invalid(*[Fault(message=f"not comparable: {why}", field="--about", hint=hint) for why in refused])
    return versus.compare(a, b, rng=Random(1))  # noqa: S311 -- flips of signs, no secret


def verdict(found: Difference, name: str) -> str:
    """Say in a sentence what a comparison came to."""
    said = "different" if found.different else "not shown to be different"
    failed = ""
    if max(found.failed_a, found.failed_b) > 0:
        failed = f"; failed: A {found.failed_a:.1%}, B {found.failed_b:.1%}"
    return (
        f"{name}: B is {found.ratio:.3f} x A (95 % CI {found.low:.3f}-{found.high:.3f}; p {found.p:.3f};"
        f" {found.pairs} pairs{failed}): {said}"
    )
