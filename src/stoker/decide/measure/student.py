"""Quantiles of Student's t: intervals from few runs are wider than a normal distribution says.

Hill, Algorithm 396: Student's t-quantiles, CACM 13 (1970); exact for one and two degrees of freedom, else to six digits
for the levels that are used here.
"""

from math import cos, expm1, pi, sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

_NORMAL = NormalDist()


class Interval(NamedTuple):
    """A mean and its bounds."""

    mean: float
    low: float
    high: float


def quantile(confidence: float, freedom: int) -> float:
    """Give the t for a two-sided interval of a confidence between 0 and 1."""
    outside = 1 - confidence
    if freedom == 1:
        half = outside * pi / 2
        return cos(half) / sqrt(1 - cos(half) ** 2)
    if freedom == 2:
        return sqrt(2 / (outside * (2 - outside)) - 2)
    a = 1 / (freedom - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * pi / 2) * freedom
    y = (d * outside) ** (2 / freedom)
    if y > 0.05 + a:
        return sqrt(freedom * _far(outside, freedom, a=a, b=b, c=c))
    inner = 1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3) + 0.5 / (freedom + 4)
    return sqrt(freedom * ((inner * y - 1) * (freedom + 1) / (freedom + 2) + 1 / y))


def _far(outside: float, freedom: int, *, a: float, b: float, c: float) -> float:
    x = _NORMAL.inv_cdf(outside / 2)
    y = x * x
    if freedom < 5:
        c += 0.3 * (freedom - 4.5) * (x + 0.6)
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * pi / 2) * freedom
    c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
    y = a * y * y
    return y + y * y / 2 if y <= 0.002 else expm1(y)


def interval(values: list[float], *, confidence: float = 0.95) -> Interval:
    """Give the mean of independent runs with its interval; of one run the bounds are infinite."""
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, float("-inf"), float("inf"))
    half = quantile(confidence, len(values) - 1) * stdev(values) / sqrt(len(values))
    return Interval(mean, mean - half, mean + half)
