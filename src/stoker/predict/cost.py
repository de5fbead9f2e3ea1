"""What does a token cost, and from which volume on is an own card cheaper than a hosted price?

An hour of cards is divided over the tokens by the engine's time that each kind takes: a token of a prompt its part of
the prefill, a cached one what is looked at it again, a token of the answer its part of the decode steps. The three
prices times the three rates are what the hour costs.
"""

from dataclasses import dataclass
from typing import Final

from stoker.base.errors import Fault, Invalid

_MILLION: Final = 1e6
_HOUR: Final = 3600.0
_MONTH: Final = 730.0  # hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """Prices of a hosted service, in US dollars per million tokens."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None  # None: as other input
    name: str = "hosted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What kind of tokens a load has, as shares of all tokens; they add up to one."""

    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Tokens a second at full use. ``input`` without what is cached."""

    input: float
    cached: float
    output: float

    @property
    def total(self) -> float:
        """Of all kinds."""
        return self.input + self.cached + self.output

    @property
    def mix(self) -> Mix:
        """As shares."""
        whole = self.total or 1.0
        return Mix(input=self.input / whole, cached=self.cached / whole, output=self.output / whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Seconds of an engine that one token of each kind takes."""

    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars per million tokens of each kind, at a use of the cards."""

    use: float
    input_usd: float
    cached_usd: float
    output_usd: float


def prices(usd_per_hour: float, rates: Rates, effort: Effort, *, use: float = 1.0) -> Prices:
    """Divide an hour's price over its tokens. Raises Invalid for what cannot be."""
    taken = rates.input * effort.input + rates.cached * effort.cached + rates.output * effort.output
    second = per_million(usd_per_hour, 1.0, use=use)  # of engine time, times a million
    if taken <= 0:
        raise Invalid(Fault(message="a load without tokens has no price per token"))
    return Prices(
        use=use,
        input_usd=second * effort.input / taken,
        cached_usd=second * effort.cached / taken,
        output_usd=second * effort.output / taken,
    )


def per_million(usd_per_hour: float, tokens_per_second: float, *, use: float = 1.0) -> float:
    """US dollars per million tokens, when a share ``use`` of the time is used. Raises Invalid for what cannot be."""
    if usd_per_hour < 0 or tokens_per_second <= 0 or not 0 < use <= 1:
        why = "a price per token needs a price of at least 0, a rate above 0 and a use above 0 and up to 1"
        raise Invalid(Fault(message=why))
    return usd_per_hour / (tokens_per_second * _HOUR * use) * _MILLION


def hosted_per_million(hosted: Hosted, mix: Mix) -> float:
    """What a million tokens of this mix costs at a hosted service."""
    cached = hosted.input_usd if hosted.cached_usd is None else hosted.cached_usd
    return mix.input * hosted.input_usd + mix.cached * cached + mix.output * hosted.output_usd


def break_even(usd_per_hour: float, hosted_usd_per_million: float) -> float:
    """Tokens a month from which on an own card, paid all the time, is cheaper; infinite where hosting is free."""
    if hosted_usd_per_million <= 0:
        return float("inf")
    return usd_per_hour * _MONTH / hosted_usd_per_million * _MILLION


def month_seconds() -> float:
    """Seconds of a month, as prices count it."""
    return _MONTH * _HOUR
