"""What do the requests of one step come to? All that were scheduled are in it, whatever became of them.

1. The warm-up is left out: by MSER-5 on the time to the first token, and never less than one p95 of a whole request,
   but at most a third of the step; requests that were scheduled in it count nowhere.
2. Percentiles of times are over the requests that reached that point; the bar is over all that were scheduled.
3. Tokens a second are those that came inside the window: a request that began before or ended after it counts by the
   part of its tokens that fell into it.
4. What we gave up because the bar was out of its reach did not meet the bar; for the ceiling on failures it is slow and
   no error.
5. The first token and the first *visible* one are kept apart: with hidden thoughts they are seconds apart.
"""

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Final

import msgspec

from stoker.decide.measure import warm
from stoker.decide.measure.bar import Bar
from stoker.decide.measure.classes import Class
from stoker.decide.measure.sample import Sample

_SHARES: Final = (0.5, 0.9, 0.95, 0.99)
_WARM_MOST: Final = 1 / 3  # of a step
_ENOUGH_FOR_P99: Final = 200  # requests that are worth an independent one


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """One metric over many requests, in its own unit."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    most: float = 0.0


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens at this load, from a price an hour."""

    usd_per_hour: float
    output_usd: float
    all_usd: float  # prompt and output together


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. All but the lags are counted from the scheduled moment."""

    first_byte: Spread
    ttft: Spread
    visible_ttft: Spread
    tpot: Spread
    gap: Spread
    e2e: Spread  # of whole answers
    send_lag: Spread
    loop_lag: Spread


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, as the server reported them."""

    prompt: Spread
    output: Spread
    per_second: float
    per_second_per_user: float
    hidden_share: float  # of the output
    cached_share: float  # of the prompts
    script_cached_share: float  # what an unbounded cache would have had
    per_read: float  # tokens that came at once
    estimated_requests: int  # the server reported none: counted by events


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of load and what came of it. ``late``: why it is not measured, or nothing."""

    load: float
    unit: str
    seed: int
    seconds: float  # of the window
    warm_seconds: float
    late: str
    interrupted: bool
    scheduled: int  # in the window
    measured: int
    met: int
    classes: dict[str, int]
    details: dict[str, int]  # outcome/detail of what was no good answer
    said: dict[str, str]  # what the server said to the first of each
    attainment: float
    failed_share: float  # no whole answer
    given_up: int  # of these: ended by us, for they were too late for the bar
    passed: bool | None  # None: no bar, or not measured
    goodput_per_second: float
    requests_per_second: float  # good answers
    in_flight: float
    times: Times
    tokens: Counts
    autocorrelation: float  # requests that are worth one independent one
    independent: float
    p99_is_sure: bool
    repaired: dict[str, int]  # what a strict client would have choked on
    cpu_microseconds_per_token: float  # of the generator
    money: Money | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What the generator brings back from one step."""

    load: float
    unit: str
    seed: int
    seconds: float
    samples: tuple[Sample, ...]
    gaps_seconds: Sequence[float]
    loop_lags_seconds: Sequence[float]
    cpu_seconds: float
    interrupted: bool = False
    trouble: str = ""  # the generator's own, such as too few files


def spread(values: Sequence[float]) -> Spread:
    """Summarise a metric."""
    if not values:
        return Spread()
    ordered = sorted(values)
    count = len(ordered)
    at = [ordered[max(0, ceil(share * count) - 1)] for share in _SHARES]
    return Spread(count=count, mean=sum(ordered) / count, p50=at[0], p90=at[1], p95=at[2], p99=at[3], most=ordered[-1])


def warm_up(samples: Sequence[Sample], seconds: float) -> float:
    """Say how much of a step's beginning to leave out."""
    started = [sample for sample in samples if sample.first_token_seconds]
    if not started or not seconds:
        return 0.0
    cut = warm.warmed_up([sample.first_token_seconds for sample in started])
    by_itself = started[cut].scheduled_seconds if 0 < cut < len(started) else 0.0
    least = warm.percentile([sample.total_seconds for sample in started], 0.95)
    return min(max(by_itself, least), seconds * _WARM_MOST)


def summarise(taken: Taken, bar: Bar | None, *, usd_per_hour: float = 0.0, warm_seconds: float | None = None) -> Step:
    """Summarise a step. ``warm_seconds``: None: found by the rule above."""
    samples = sorted(taken.samples, key=lambda sample: sample.scheduled_seconds)
    cut = warm_up(samples, taken.seconds) if warm_seconds is None else warm_seconds
    window = [sample for sample in samples if sample.scheduled_seconds >= cut]
    measured = [sample for sample in window if sample.measured]
    seconds = max(taken.seconds - cut, 1e-9)
    rule = bar or Bar(error_rate=1.0)
    met = sum(rule.met(sample) for sample in measured)
    failed = sum(not sample.good for sample in measured)
    given_up = sum(sample.given_up for sample in measured)
    late = taken.trouble or warm.late(
        send_lags=[sample.send_lag_seconds for sample in window],
        loop_lags=taken.loop_lags_seconds,
        bar_seconds=rule.ttft_seconds,
    )
    count = max(1, len(measured))
    verdict = None if bar is None or late or not measured else _passes(met / count, (failed - given_up) / count, bar)
    rate = _tokens_inside(samples, cut, taken.seconds) / seconds
    tau = warm.autocorrelation_time([s.first_token_seconds for s in measured if s.first_token_seconds])
    return Step(
        load=taken.load,
        unit=taken.unit,
        seed=taken.seed,
        seconds=seconds,
        warm_seconds=cut,
        late=late,
        interrupted=taken.interrupted,
        scheduled=len(window),
        measured=len(measured),
        met=met,
        classes={kind.value: sum(sample.kind is kind for sample in window) for kind in Class},
        details=dict(Counter(_detail(s) for s in measured if not s.good and s.outcome)),
        said={_detail(s): s.message for s in reversed(measured) if not s.good and s.outcome and s.message},
        attainment=met / count,
        failed_share=failed / count,
        given_up=given_up,
        passed=verdict,
        goodput_per_second=met / seconds,
        requests_per_second=(len(measured) - failed) / seconds,
        in_flight=_in_flight(samples, cut, taken.seconds) / seconds,
        times=_times(measured, taken),
        tokens=_tokens(measured, rate),
        autocorrelation=tau,
        independent=len(measured) / tau,
        p99_is_sure=len(measured) / tau >= _ENOUGH_FOR_P99,
        repaired=dict(Counter(repair for sample in measured for repair in sample.repairs)),
        cpu_microseconds_per_token=_cpu_microseconds(taken),
        money=_money(measured, rate, usd_per_hour),
    )


def _cpu_microseconds(taken: Taken) -> float:
    made = sum(sample.tokens.output for sample in taken.samples)
    return taken.cpu_seconds / made * 1e6 if made else 0.0


def _detail(sample: Sample) -> str:
    return f"{sample.outcome}/{sample.detail or sample.kind}"


def _passes(attainment: float, failed: float, bar: Bar) -> bool:
    return attainment >= bar.share and failed <= bar.error_rate


def _times(measured: Sequence[Sample], taken: Taken) -> Times:
    pace = [sample.tpot_seconds for sample in measured]
    return Times(
        first_byte=spread([s.first_byte_seconds for s in measured if s.first_byte_seconds]),
        ttft=spread([s.first_token_seconds for s in measured if s.first_token_seconds]),
        visible_ttft=spread([s.first_visible_seconds for s in measured if s.first_visible_seconds]),
        tpot=spread([value for value in pace if value is not None]),
        gap=spread(taken.gaps_seconds),
        e2e=spread([s.total_seconds for s in measured if s.good]),
        send_lag=spread([s.send_lag_seconds for s in measured]),
        loop_lag=spread(taken.loop_lags_seconds),
    )


def _tokens(measured: Sequence[Sample], rate: float) -> Counts:
    prompt = sum(s.tokens.prompt for s in measured) or 1
    asked = sum(s.asked_prompt_tokens for s in measured) or 1
    output = sum(s.tokens.output for s in measured)
    pace = [s.tpot_seconds for s in measured if s.tpot_seconds]
    return Counts(
        prompt=spread([float(s.tokens.prompt) for s in measured if s.tokens.prompt]),
        output=spread([float(s.tokens.output) for s in measured if s.tokens.output]),
        per_second=rate,
        per_second_per_user=len(pace) / sum(pace) if pace else 0.0,
        hidden_share=sum(s.hidden_tokens for s in measured) / (output or 1),
        cached_share=sum(s.tokens.cached for s in measured) / prompt,
        script_cached_share=sum(s.shared_tokens for s in measured) / asked,
        per_read=output / (sum(s.reads for s in measured) or 1),
        estimated_requests=sum(s.tokens.estimated for s in measured),
    )


def _tokens_inside(samples: Sequence[Sample], begin: float, end: float) -> float:
    """Count the tokens that came inside the window."""
    found = 0.0
    for sample in samples:
        if not sample.first_token_seconds:
            continue
        first = sample.scheduled_seconds + sample.first_token_seconds
        last = sample.scheduled_seconds + sample.last_token_seconds
        if last <= first:
            found += sample.tokens.output if begin <= first < end else 0
        else:
            found += sample.tokens.output * max(0.0, min(last, end) - max(first, begin)) / (last - first)
    return found


def _in_flight(samples: Sequence[Sample], begin: float, end: float) -> float:
    """Count the seconds that requests were under way inside the window."""
    spans = [(s.scheduled_seconds + s.send_lag_seconds, s.scheduled_seconds + s.total_seconds) for s in samples]
    return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in spans)


def _money(measured: Sequence[Sample], rate: float, usd_per_hour: float) -> Money | None:
    if not usd_per_hour or not rate:
        return None
    output = sum(s.tokens.output for s in measured) or 1
    every = output + sum(s.tokens.prompt for s in measured)
    usd = usd_per_hour / (rate * 3600) * 1e6
    return Money(usd_per_hour=usd_per_hour, output_usd=usd, all_usd=usd * output / every)
