"""How many requests can one replica have in flight, roughly? A formula for hundreds of configurations.

In a closed loop of ``N`` requests, each of ``O`` tokens out and a prefill of ``t``: a round is ``O · step(N) + N · t``
seconds, so TPOT is ``step(N) + N · t / O``, and a prompt waits for others as at a server that is busy the share
``N · t / round`` of its time. The simulation judges those that look best; this only finds them.
"""

from dataclasses import dataclass, replace
from typing import Final

from stoker.decide.goodput.candidates import Candidate, Dropped
from stoker.decide.goodput.fleet import Fleet
from stoker.predict.batching.request import Batch
from stoker.predict.batching.score import Slo
from stoker.predict.timing.speed import has_rows
from stoker.predict.traffic.mix import Mix

_P90: Final = 2.3  # a ninth decile of a wait, in means: the wait is about exponential
_MOST: Final = 4096
_SPREAD: Final = 1.15  # the ninth decile of TPOT over its mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """One replica at the most that it takes."""

    in_flight: int
    ttft_seconds: float
    tpot_seconds: float
    per_second: float
    bound: str  # what ends it: a bar, or the cache


def guess(fleet: Fleet, mix: Mix, slo: Slo, *, slower: float = 1.0) -> Guess:
    """The largest load of one engine; ``slower`` scales all times, for the ends of a band."""
    held = int(fleet.limits.blocks * fleet.limits.block_tokens / max(1.0, mix.context))
    most = max(0, min(held, fleet.limits.sequences, _MOST))
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        found = _at(fleet, mix, middle, slower)
        meets = found.ttft_seconds <= slo.visible_ttft_p90_seconds and found.tpot_seconds <= slo.tpot_p90_seconds
        low, high = (middle, high) if meets else (low, middle)
    if low == most:
        return replace(_at(fleet, mix, max(1, low), slower), in_flight=low, bound="the KV cache")
    over = _at(fleet, mix, low + 1, slower)
    bound = "visible TTFT" if over.ttft_seconds > slo.visible_ttft_p90_seconds else "TPOT"
    return replace(_at(fleet, mix, max(1, low), slower), in_flight=low, bound=bound)


def _at(fleet: Fleet, mix: Mix, count: int, slower: float) -> Guess:
    step = slower * fleet.step(Batch(count, count * mix.context))
    prefill = slower * (_prefill(fleet, mix.new, mix.shared) - fleet.step(Batch()))
    longest = slower * _prefill(fleet, mix.new_p90, mix.prompt_p90 - mix.new_p90)
    round_ = mix.output * step + count * prefill
    busy = min(0.99, count * prefill / round_) if round_ else 0.0
    waits = _P90 * busy * prefill / (1 - busy) if count > 1 else 0.0
    return Guess(
        in_flight=count,
        ttft_seconds=fleet.step.base * slower
        + (longest + waits + step) * fleet.step.stretch
        + mix.hidden * (round_ / mix.output),
        tpot_seconds=_SPREAD * round_ / mix.output,
        per_second=count / round_ if round_ else 0.0,
        bound="",
    )


def _prefill(fleet: Fleet, new: float, cached: float) -> float:
    tokens = max(1, round(new))
    pieces = -(-tokens // fleet.limits.batch_tokens)
    whole = fleet.step(Batch(0, 0.0, tokens, tokens * (max(0.0, cached) + tokens / 2)))
    return whole + (pieces - 1) * fleet.step(Batch())


def fails(candidate: Candidate, fleet: Fleet | None, found: Guess | None) -> Dropped | None:
    """Why a configuration falls out; None: it does not."""
    if fleet is None or found is None:
        engine = candidate.plan.ask.engine
        empty = "at the setting that holds for weeks nothing is left for the cache"
        kind = empty if has_rows(engine) else f"no measured times for {engine}"
        return Dropped(label=candidate.label, kind=kind, why=kind)
    if found.in_flight:
        return None
    figures = f"alone it has a TTFT of {found.ttft_seconds:.1f} s and {found.tpot_seconds * 1e3:.0f} ms a token"
    return Dropped(label=candidate.label, kind=f"one request alone misses the bar: {found.bound}", why=figures)
