"""Where does the warm-up end, how much is each request worth, and was the generator itself on time?"""

from collections.abc import Sequence
from math import ceil
from typing import Final

_BATCH: Final = 5
_LAG_SHARE: Final = 0.05  # of the TTFT bar
_LOOP_LAG_SECONDS: Final = 0.010
_STALL_SECONDS: Final = 0.150  # a long step dilutes a stall until no percentile shows it


def warmed_up(values: Sequence[float]) -> int:
    """Say how many leading values to leave out, by MSER-5 (White 1997): what remains has the smallest standard error.

    At most half is left out; where the minimum lies there the run was too short to tell, and half is the answer.
    """
    means = [sum(values[at : at + _BATCH]) / _BATCH for at in range(0, len(values) - _BATCH + 1, _BATCH)]
    if len(means) < 4:
        return 0
    best, at = float("inf"), 0
    for cut in range(len(means) // 2 + 1):
        rest = means[cut:]
        mean = sum(rest) / len(rest)
        error = sum((value - mean) ** 2 for value in rest) / len(rest) ** 2
        if error < best:
            best, at = error, cut
    return at * _BATCH


def autocorrelation_time(values: Sequence[float]) -> float:
    """Say how many requests are worth one independent one: the integrated autocorrelation time, at least 1.

    The sum over lags ends at five times itself (Sokal's window), since the far lags are noise.
    """
    count = len(values)
    mean = sum(values) / count if count else 0.0
    shifted = [value - mean for value in values]
    variance = sum(value * value for value in shifted)
    if variance <= 0:
        return 1.0
    tau = 1.0
    for lag in range(1, count // 2):
        tau += 2 * sum(a * b for a, b in zip(shifted, shifted[lag:], strict=False)) / variance
        if lag >= 5 * tau:
            break
    return max(1.0, tau)


def percentile(values: Sequence[float], share: float) -> float:
    """Give the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def late(*, send_lags: Sequence[float], loop_lags: Sequence[float], bar_seconds: float) -> str:
    """Say why a step is not measured because of ourselves, or nothing. All in seconds; a bar of 0 is none."""
    if send_lags and bar_seconds:
        lag = percentile(send_lags, 0.99)
        if lag > _LAG_SHARE * bar_seconds:
            return f"the generator sent late: p99 {lag * 1000:.1f} ms, more than 5 % of the bar"
    if loop_lags:
        lag = percentile(loop_lags, 0.99)
        if lag > _LOOP_LAG_SECONDS:
            return f"the generator's loop was late: p99 {lag * 1000:.1f} ms"
        if max(loop_lags) > _STALL_SECONDS:
            return f"the generator stood still for {max(loop_lags) * 1000:.0f} ms"
    return ""
