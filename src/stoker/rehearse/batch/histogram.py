"""What requests took, as an exporter keeps it: one set of histograms for each engine, with its own bounds."""

from bisect import bisect_left
from typing import Final

from stoker.predict.batching.request import Job

_FIRST: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_BETWEEN: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_WHOLE: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_TOKENS: Final = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))
_SGLANG_FIRST: Final = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0,
)  # fmt: skip
_SGLANG_BETWEEN: Final = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
)  # fmt: skip


class Histogram:
    """Observations, mostly in seconds."""

    __slots__ = ("_counts", "bounds", "count", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.total = 0.0
        self.count = 0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Add one, or the same several times."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.total += value * times
        self.count += times

    @property
    def upto(self) -> list[int]:
        """How many observations lie at or below each bound."""
        seen, found = 0, []
        for count in self._counts[:-1]:
            seen += count
            found.append(seen)
        return found


class Seen:
    """All that an engine measures of its requests. Each is named as vLLM names it."""

    __slots__ = (
        "between",
        "decode",
        "first",
        "generated",
        "inference",
        "output",
        "prefill",
        "prompt",
        "queue",
        "whole",
    )

    def __init__(self, *, sglang: bool = False) -> None:
        first, between = (_SGLANG_FIRST, _SGLANG_BETWEEN) if sglang else (_FIRST, _BETWEEN)
        self.first = Histogram(first)
        self.between = Histogram(between)
        self.output = Histogram(between)  # of one token of a request, on average
        whole = _SGLANG_FIRST if sglang else _WHOLE
        self.whole, self.queue, self.inference = (Histogram(whole) for _ in range(3))
        self.prefill, self.decode = Histogram(whole), Histogram(whole)
        self.prompt, self.generated = Histogram(_TOKENS), Histogram(_TOKENS)

    def ended(self, job: Job) -> None:
        """A request has got its last token."""
        self.whole.observe(job.finished - job.arrived)
        self.queue.observe(job.began - job.arrived)
        self.inference.observe(job.finished - job.began)
        self.prefill.observe(job.first - job.began)
        self.decode.observe(job.finished - job.first)
        self.prompt.observe(job.request.prompt_tokens)
        self.generated.observe(job.request.output_tokens)
        if job.request.output_tokens > 1:
            self.output.observe(job.tpot)
