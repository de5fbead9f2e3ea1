"""Random numbers of the kinds that traffic has. Each draw takes the generator that the caller brings."""

from bisect import bisect_right
from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random
from typing import Protocol


class Draw(Protocol):
    """One kind of number."""

    def __call__(self, rng: Random) -> float:
        """Draw one."""

    @property
    def mean(self) -> float:
        """What many come to on average."""


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Most are near the median, a few are far above. ``most``: what is beyond becomes this."""

    median: float
    sigma: float
    most: float = float("inf")

    def __call__(self, rng: Random) -> float:
        """Draw one."""
        return min(self.most, self.median * exp(rng.gauss(0.0, self.sigma)))

    @property
    def mean(self) -> float:
        """Of the uncut distribution, and never above the cut."""
        return min(self.most, self.median * exp(self.sigma**2 / 2))

    @classmethod
    def of(cls, mean: float, deviation: float, most: float = float("inf")) -> "LogNormal":
        """From mean and standard deviation, as papers give them."""
        square = log(1 + (deviation / mean) ** 2)
        return cls(mean * exp(-square / 2), sqrt(square), most)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution as points of (share, value), geometric in between: for what is no log-normal."""

    points: tuple[tuple[float, float], ...]

    def __call__(self, rng: Random) -> float:
        """Draw one."""
        return self.at(rng.random())

    def at(self, share: float) -> float:
        """The value below which this share lies."""
        shares = [point[0] for point in self.points]
        place = min(max(1, bisect_right(shares, share)), len(shares) - 1)
        (low, first), (high, second) = self.points[place - 1], self.points[place]
        part = (share - low) / (high - low)
        return first * float((second / first) ** part)

    @property
    def mean(self) -> float:
        """By a hundred steps."""
        return sum(self.at((i + 0.5) / 100) for i in range(100)) / 100


@dataclass(frozen=True, slots=True)
class Mixture:
    """One of several kinds, each with its share; the shares add up to one."""

    parts: tuple[tuple[float, Draw], ...]

    def __call__(self, rng: Random) -> float:
        """Draw one."""
        at = rng.random()
        for share, draw in self.parts:
            at -= share
            if at < 0:
                return draw(rng)
        return self.parts[-1][1](rng)

    @property
    def mean(self) -> float:
        """Of all kinds."""
        return sum(share * draw.mean for share, draw in self.parts)


@dataclass(frozen=True, slots=True)
class Always:
    """The same every time."""

    value: float

    def __call__(self, rng: Random) -> float:  # noqa: ARG002 -- one shape for all draws
        """Draw one."""
        return self.value

    @property
    def mean(self) -> float:
        """The same."""
        return self.value
