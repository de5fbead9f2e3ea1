"""What does a token cost here, what would it cost elsewhere, and how long does it stay so?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import ceil, inf, log
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.decide.goodput import fleet as fleets
from stoker.decide.goodput.fleet import Fleet
from stoker.decide.goodput.search import Option, Wanted
from stoker.predict import cost
from stoker.predict.batching.request import Batch
from stoker.predict.cost import Effort, Hosted, Prices, Rates
from stoker.predict.traffic.mix import Mix

USES: Final = (0.3, 0.6, 1.0)
_STEPS: Final = 12  # dates that a growth is told at, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A hosted service beside the own cards. Volumes are tokens of all kinds a month."""

    hosted: Hosted
    per_million_usd: float  # of this mix
    month_usd: float  # for the planned load
    break_even_tokens: float
    cheaper_at_home: bool  # at the planned load


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The price of a configuration. ``use``: of what its replicas could take, at the planned load."""

    usd_per_hour: float
    use: float
    planned: Prices
    at: tuple[Prices, ...]
    per_session_usd: float
    month_usd: float
    month_tokens: float
    against: tuple[Against, ...]


def effort(fleet: Fleet, mix: Mix, in_flight: float) -> Effort:
    """How long a token of each kind keeps an engine busy."""
    count = max(1, round(in_flight))
    nothing = fleet.step(Batch())
    new = max(1, round(mix.new))
    alone = fleet.step(Batch(0, 0.0, new, new * new / 2))
    behind = fleet.step(Batch(0, 0.0, new, new * (mix.shared + new / 2)))
    return Effort(
        input=max(alone - nothing, nothing * new / fleet.limits.batch_tokens) / new,
        cached=(behind - alone) / mix.shared if mix.shared else 0.0,
        output=fleet.step(Batch(count, count * mix.context)) / count,
    )


def money(option: Option, wanted: Wanted, hosted: Sequence[Hosted]) -> Money | None:
    """Price an option at its planned load; None where it has no price or was not simulated."""
    found, proof = option.capacity, option.proof
    if option.usd is None or proof is None or found is None or found.at is None:
        return None
    engines = option.replicas * fleets.lanes(option.candidate.plan)
    full = found.at
    cached = full.input_tokens_per_second * full.cached_share
    rates = Rates(
        input=(full.input_tokens_per_second - cached) * engines,
        cached=cached * engines,
        output=full.output_tokens_per_second * engines,
    )
    use = min(1.0, wanted.in_flight / (option.each * option.replicas))
    each = effort(option.fleet, wanted.mix, found.load.mean)
    planned = cost.prices(option.usd, rates, each, use=use)
    tokens = rates.total * use * cost.month_seconds()
    mix = wanted.mix
    session = mix.turns * (mix.new * planned.input_usd + mix.shared * planned.cached_usd)
    return Money(
        usd_per_hour=option.usd,
        use=use,
        planned=planned,
        at=tuple(cost.prices(option.usd, rates, each, use=share) for share in USES),
        per_session_usd=(session + mix.turns * mix.output * planned.output_usd) / 1e6,
        month_usd=option.usd * cost.month_seconds() / 3600,
        month_tokens=tokens,
        against=tuple(_against(option.usd, each_hosted, rates, tokens) for each_hosted in hosted),
    )


def _against(usd_per_hour: float, hosted: Hosted, rates: Rates, tokens: float) -> Against:
    per_million = cost.hosted_per_million(hosted, rates.mix)
    even = cost.break_even(usd_per_hour, per_million)
    return Against(
        hosted=hosted,
        per_million_usd=per_million,
        month_usd=per_million * tokens / 1e6,
        break_even_tokens=even,
        cheaper_at_home=tokens > even,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """The day on which so many replicas are full."""

    day: date
    factor: float  # of today's load
    replicas: int
    cards: int
    limit: str


def growth(option: Option, wanted: Wanted, *, factor: float, today: date, by: date) -> tuple[Milestone, ...]:
    """When does a load that grows evenly, percent by percent, reach which limit? Raises Invalid for no growth."""
    if factor <= 1 or by <= today:
        why = f"a growth is more than 1x, and by a day after {today.isoformat()}"
        raise Invalid(Fault(message=why, field="--growth, --by", hint="such as --growth 10x --by 2027-12-31"))
    limit = option.capacity.why if option.capacity else option.guess.bound
    last = ceil(factor * wanted.in_flight / option.each)
    counts = sorted({round(option.replicas * (last / option.replicas) ** (i / _STEPS)) for i in range(_STEPS + 1)})
    found = []
    for replicas in counts:
        reached = replicas * option.each / wanted.in_flight
        if 1 <= reached < factor:
            share = log(reached) / log(factor)
            day = today + timedelta(days=share * (by - today).days)
            cards = replicas * option.candidate.plan.ask.split.ranks
            found.append(Milestone(day=day, factor=reached, replicas=replicas, cards=cards, limit=limit))
    return tuple(found)


def needed(option: Option, wanted: Wanted, factor: float) -> int:
    """Replicas for so many times the load."""
    return ceil(factor * wanted.in_flight / option.each) if option.each else round(inf)
