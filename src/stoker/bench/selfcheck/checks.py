"""What is checked, with what, and how far may it be off? The judges are pure; the plays say what is sent to whom."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from stoker.base.json import JsonObject
from stoker.bench.load.talk import Ask
from stoker.decide.measure.classes import Class
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Taken, summarise
from stoker.decide.measure.warm import percentile
from stoker.drivers.hosts.rehearsal import Truth

THOUGHTS: Final = 20  # tokens of hidden reasoning, at 100 tokens a second
_PACE: Final = 100.0
_FAULTS: Final[tuple[JsonObject, ...]] = (
    {"status": 429},
    {"cut_after_tokens": 3, "cut": "clean"},
    {"cut_after_tokens": 3, "cut": "reset"},
    {"error_after_tokens": 3},
    {"empty": True},
    {"calls": 1, "half_call": "finished"},
)
_GOOD: Final = 14
MIX: Final[JsonObject] = {
    "text": "one two three four five",
    "calls": 0,
    "rota": [*_FAULTS, *[{} for _ in range(_GOOD)]],
}
TRUE_MIX: Final = {
    Class.COMPLETE: 70,
    Class.TRUNCATED: 10,  # five clean, five by a reset
    Class.REJECTED: 5,
    Class.ERROR: 5,
    Class.EMPTY: 5,
    Class.TOOL_PARSE: 5,
}
STEADY: Final[JsonObject] = {"tokens": 100, "tokens_per_second": 50.0, "first_token_seconds": 0.2}
THINKING: Final[JsonObject] = {
    "text": "a b c d e f g h",
    "reasoning": "x " * THOUGHTS,
    "tokens_per_second": _PACE,
    "first_token_seconds": 0.05,
}
MANY: Final[JsonObject] = {"tokens": 160, "tokens_per_second": 40.0, "first_token_seconds": 0.2}
STREAMS: Final = 256


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what was found, and what may be."""

    name: str
    what: str
    found: str
    target: str
    ok: bool


def asks(count: int, *, output: int) -> list[Ask]:
    """Make plain requests."""
    return [Ask(i, 1, prompt_tokens=20, output_tokens=output, shared_tokens=0, head_tokens=0) for i in range(count)]


def timing(taken: Taken, truth: Sequence[Truth]) -> list[Row]:
    """Compare the times of eight streams with those at which the engine sent."""
    good = [sample for sample in taken.samples if sample.good]
    real = [each for each in truth if each.tokens > 1]
    if not good or len(real) != len(good):
        told = f"{len(good)} whole answers, {len(real)} of the engine"
        return [_row("timing", "every answer is there", told, "as many as the engine gave", ok=False)]
    first, true_first = [s.first_token_seconds for s in good], [t.first_token_seconds for t in real]
    pace = _mean([s.tpot_seconds or 0.0 for s in good])
    true_pace = _mean([(t.last_token_seconds - t.first_token_seconds) / (t.tokens - 1) for t in real])
    mean = abs(_mean(first) - _mean(true_first)) * 1000
    tail = abs(percentile(first, 0.99) - percentile(true_first, 0.99)) * 1000
    off = abs(pace / true_pace - 1)
    rate = _rate([(s.first_token_seconds, s.last_token_seconds, s.tokens.output) for s in good])
    true_rate = _rate([(t.first_token_seconds, t.last_token_seconds, t.tokens) for t in real])
    speed = abs(rate / true_rate - 1)
    return [
        _row("ttft mean", "8 streams, off the engine's truth", f"{mean:.2f} ms", "3 ms", ok=mean <= 3),
        _row("ttft p99", "the same", f"{tail:.2f} ms", "10 ms", ok=tail <= 10),
        _row("tpot", "the same, mean", f"{off:.2%}", "0.5 %", ok=off <= 0.005),
        _row("tokens/s", "of each stream, mean", f"{speed:.2%}", "1 %", ok=speed <= 0.01),
    ]


def mix(samples: Sequence[Sample]) -> list[Row]:
    """See whether every fault was counted as what it is."""
    seen = Counter(sample.kind for sample in samples)
    wrong = {kind: (seen[kind], TRUE_MIX.get(kind, 0)) for kind in Class if seen[kind] != TRUE_MIX.get(kind, 0)}
    told = ", ".join(f"{kind.value} {found} for {true}" for kind, (found, true) in wrong.items()) or "exact"
    what = "5 each of 429, clean cut, reset, in-band error, empty, broken tool call in 100"
    return [_row("fault mix", what, told, "exact", ok=not wrong)]


def thoughts(samples: Sequence[Sample]) -> list[Row]:
    """See whether the first token and the first that is seen are told apart."""
    hidden = [s.first_visible_seconds - s.first_token_seconds for s in samples if s.good]
    true = THOUGHTS / _PACE
    off = abs(_mean(hidden) - true) * 1000 if hidden else float("inf")
    counted = {sample.hidden_tokens for sample in samples}
    what = f"{THOUGHTS} hidden tokens before the first visible one"
    return [
        _row("visible ttft", what, f"{off:.2f} ms off {true * 1000:.0f} ms", "10 ms", ok=off <= 10),
        _row("hidden tokens", what, f"{sorted(counted)}", f"[{THOUGHTS}]", ok=counted == {THOUGHTS}),
    ]


def light(taken: Taken, truth: Sequence[Truth]) -> list[Row]:
    """See what the generator costs at many streams, and whether it still measures."""
    tokens = sum(sample.tokens.output for sample in taken.samples)
    each = taken.cpu_seconds / max(1, tokens) * 1e6
    most = 1e6 / each if each else 0.0
    first = _mean([s.first_token_seconds for s in taken.samples if s.good])
    true = _mean([t.first_token_seconds for t in truth])
    off = abs(first - true) * 1000
    came = sum((s.tokens.output - 1) / (s.last_token_seconds - s.first_token_seconds) for s in taken.samples if s.good)
    what = f"{STREAMS} streams of 40 tokens/s on one core"
    return [
        _row("cpu a token", what, f"{each:.1f} us", "60 us", ok=each <= 60),
        _row("tokens/s a core", f"the same, {came:,.0f} came", f"{most:,.0f}", "10,000 or more", ok=most >= 10_000),
        _row("ttft at that load", "the same, mean off the truth", f"{off:.2f} ms", "5 ms", ok=off < 5),
    ]


def frozen(taken: Taken) -> list[Row]:
    """See whether a generator that stood still says so."""
    late = summarise(taken, None, warm_seconds=0.0).late
    return [_row("freeze", "the generator stands still for 200 ms", late or "measured", "not measured", ok=bool(late))]


def _row(name: str, what: str, found: str, target: str, *, ok: bool) -> Row:
    return Row(name=name, what=what, found=found, target=target, ok=ok)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rate(spans: Sequence[tuple[float, float, int]]) -> float:
    return _mean([(tokens - 1) / (last - first) for first, last, tokens in spans if last > first])
