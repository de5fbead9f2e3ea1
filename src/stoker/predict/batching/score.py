"""Was it good enough? Percentiles of a run, how many requests met the bar, and what was full."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Final

from stoker.predict.batching.loop import Run
from stoker.predict.batching.machine import Gauges, Machine

# Student's t for 95 % by degrees of freedom: replications are few.
_T: Final = (inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL: Final = 1.96
_WAVE: Final = 0.15  # of the time: a closed loop begins with all prompts at once
_OFTEN: Final = 0.05  # of the time: what is full less often saturates nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a user must feel, nine of ten times."""

    visible_ttft_p90_seconds: float
    tpot_p90_seconds: float
    error_rate: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Seconds by percentile."""

    p50: float
    p90: float
    p99: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One run. Rates are of all engines together; shares are from 0 to 1."""

    requests: int
    requests_per_second: float
    good_share: float  # requests that were answered and met the bar by themselves
    error_share: float
    visible_ttft: Spread
    tpot: Spread
    input_tokens_per_second: float  # prompts, what was cached of them included
    cached_share: float  # of prompt tokens
    output_tokens_per_second: float
    in_flight: float
    cache_used: float
    saturates: str
    preemptions: int
    meets: bool

    @property
    def good_per_second(self) -> float:
        """Goodput."""
        return self.requests_per_second * self.good_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What calibrates a time to the first token: seconds outside the engine's steps, and a factor on those inside."""

    base: float = 0.0
    stretch: float = 1.0


_NOTHING_OUTSIDE: Final = Outside()


def score(
    run: Run, machines: Sequence[Machine], slo: Slo, *, skip: int = 0, outside: Outside = _NOTHING_OUTSIDE
) -> Score:
    """Judge a run without its first ``skip`` requests."""
    jobs = run.jobs[skip:] or run.jobs
    begun = run.jobs[skip - 1].finished if 0 < skip < len(run.jobs) else 0.0
    span = max(run.seconds - begun, 1e-9)
    asked = len(jobs) + len(run.refused)
    longer = outside.stretch - 1
    shown = [job.visible_ttft + outside.base + longer * job.ttft for job in jobs]
    each = [job.tpot for job in jobs]
    good = sum(
        ttft <= slo.visible_ttft_p90_seconds and tpot <= slo.tpot_p90_seconds
        for ttft, tpot in zip(shown, each, strict=True)
    )
    ttft, tpot = spread(shown), spread(each)
    errors = len(run.refused) / max(1, asked)
    prompt = sum(job.request.prompt_tokens for job in jobs)
    busy = max(1e-9, sum(m.gauges.busy for m in machines))
    meets = bool(jobs) and ttft.p90 <= slo.visible_ttft_p90_seconds and tpot.p90 <= slo.tpot_p90_seconds
    return Score(
        requests=len(jobs),
        requests_per_second=len(jobs) / span,
        good_share=good / max(1, asked),
        error_share=errors,
        visible_ttft=ttft,
        tpot=tpot,
        input_tokens_per_second=prompt / span,
        cached_share=sum(job.hit_tokens for job in jobs) / max(1, prompt),
        output_tokens_per_second=sum(job.request.output_tokens for job in jobs) / span,
        in_flight=sum(job.finished - job.arrived for job in jobs) / span,
        cache_used=sum(m.gauges.block_seconds / m.blocks.total for m in machines) / busy,
        saturates=saturates([m.gauges for m in machines], tpot=tpot.p90 / slo.tpot_p90_seconds),
        preemptions=sum(m.gauges.preemptions for m in machines),
        meets=meets and errors <= slo.error_rate,
    )


def spread(values: Sequence[float]) -> Spread:
    """The percentiles of some numbers."""
    ordered = sorted(values)
    p50, p90, p99 = (quantile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Spread(p50=p50, p90=p90, p99=p99, mean=fmean(ordered) if ordered else float("nan"))


def saturates(gauges: Sequence[Gauges], *, tpot: float) -> str:
    """Name what is full first: what requests waited for, else what fills the steps. ``tpot``: as a part of the bar."""
    busy = max(1e-9, sum(g.busy for g in gauges))
    waits = {
        "the KV cache": sum(g.blocked_cache for g in gauges) / busy,
        "the sequence limit": sum(g.blocked_sequences for g in gauges) / busy,
        "prompts wait for the token budget": sum(g.blocked_budget for g in gauges) / busy - _WAVE,
    }
    worst = max(waits, key=lambda name: waits[name])
    if waits[worst] > _OFTEN:
        return worst
    if sum(g.prefilling for g in gauges) / busy > 0.5:
        return "most steps compute prompts"
    return "each step takes its time" if tpot > 0.8 else "nothing yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over replications, and where it lies with 95 %."""

    mean: float
    low: float
    high: float
    runs: int


def interval(values: Sequence[float]) -> Interval:
    """Of one run nothing is known but itself: its interval is all that can be."""
    count = len(values)
    middle = fmean(values)
    if count < 2:
        return Interval(mean=middle, low=0.0, high=inf, runs=count)
    half = (_T[count - 1] if count <= len(_T) else _NORMAL) * stdev(values) / sqrt(count)
    return Interval(mean=middle, low=max(0.0, middle - half), high=middle + half, runs=count)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted numbers lies, linear in between."""
    if not ordered:
        return float("nan")
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
