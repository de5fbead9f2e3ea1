"""Which configuration serves this load within its bar at the lowest cost?

1. Every configuration is planned; what does not start, or misses the bar even alone, falls out with its reason.
2. A formula finds the load that the others take; the cheapest are simulated, of each card at least one.
3. Costs have the bands of the predicted times. A configuration's place is one more than the number of those that are
   cheaper for certain: whose costs end below where its own begin. Those of one place stand in the order of what is
   better known, then fewer cards, then wider weights; only then comes the middle of the band.
4. What has no price is ranked by hours of cards, apart.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from stoker.decide.goodput import candidates, capacity, screen
from stoker.decide.goodput import fleet as fleets
from stoker.decide.goodput.candidates import Candidate, Dropped, Space
from stoker.decide.goodput.capacity import Capacity
from stoker.decide.goodput.fleet import Fleet
from stoker.decide.goodput.screen import Guess
from stoker.predict.batching.score import Score, Slo
from stoker.predict.coefficients import Coefficients, Speed
from stoker.predict.fits import Plan
from stoker.predict.timing.speed import outside
from stoker.predict.traffic.mix import Mix
from stoker.predict.traffic.profile import Profile

FINALISTS: Final = 8
UNPRICED: Final = 3
_OF_A_CARD: Final = 2
_TRIES: Final = 4  # replicas that are added until a simulation of all of them meets the bar
_LIKELY: Final = 0.75  # of the guess: where a simulation usually ends
_AMPLE: Final = 4.0  # times the wanted load: how much more one engine takes need not be known to rank it
_ENOUGH: Final = 16.0
_ROOM: Final = 1.25  # sequences above the load that met the bar
_WIDEST: Final = 3.0  # the band of what is extrapolated


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked. ``sessions``: at work with pauses; 0: ``in_flight`` requests are there all the time."""

    profile: Profile
    mix: Mix
    slo: Slo
    in_flight: float
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the planner knows. ``usd``: of a card and hour, by the card's name; cards without a price are not in it."""

    memory: Coefficients
    speed: Speed
    usd: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration that serves what is wanted. ``usd_*`` per hour, None without a price; hours are cards."""

    candidate: Candidate
    fleet: Fleet
    guess: Guess
    extrapolated: tuple[str, ...]
    each: float  # requests in flight that one replica takes
    each_low: float
    each_high: float
    replicas: int
    cards: int
    cards_low: int
    cards_high: int
    usd: float | None
    place: int = 0
    capacity: Capacity | None = None  # None: not simulated
    proof: Score | None = None  # all replicas under the wanted load

    @property
    def usd_low(self) -> float:
        """At the fast end of the band; cards where there is no price."""
        return self.cards_low * self._one

    @property
    def usd_high(self) -> float:
        """At the slow end."""
        return self.cards_high * self._one

    @property
    def cost(self) -> float:
        """What is compared: dollars an hour, or cards."""
        return self.cards * self._one

    @property
    def _one(self) -> float:
        return self.usd / self.cards if self.usd is not None else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a search. ``pareto``: nothing else is better in cost, first word and pace at once."""

    options: tuple[Option, ...]
    unpriced: tuple[Option, ...]
    pareto: tuple[Option, ...]
    dropped: tuple[Dropped, ...]
    searched: int


Tell = Callable[[str, int, int], None]


def search(space: Space, wanted: Wanted, known: Known, *, tell: Tell) -> Result:
    """Search. ``tell`` hears what is done, how many of how many."""
    asked = list(candidates.asks(space))
    guessed: dict[str, Option] = {}
    dropped: dict[str, Dropped] = {}
    for i, (variant, ask) in enumerate(asked, start=1):
        tell("plan", i, len(asked))
        found = candidates.planned(variant, ask, known.memory)
        judged = found if isinstance(found, Dropped) else _judge(found, wanted, known)
        if isinstance(judged, Dropped):
            dropped.setdefault(judged.label, judged)
        else:
            guessed.setdefault(judged.candidate.label, judged)  # flags that are the default come twice
    chosen = [
        *_finalists([o for o in guessed.values() if o.usd is not None], FINALISTS),
        *_finalists([o for o in guessed.values() if o.usd is None], UNPRICED),
    ]
    finals: list[Option] = []
    for i, option in enumerate(chosen, start=1):
        tell("simulate", i, len(chosen))
        simulated = simulate(option, wanted)
        if isinstance(simulated, Dropped):
            dropped[simulated.label] = simulated
        else:
            finals.append(simulated)
    options, unpriced = (tuple(rank([o for o in finals if (o.usd is not None) is has])) for has in (True, False))
    return Result(
        options=options,
        unpriced=unpriced,
        pareto=tuple(pareto(options or unpriced)),
        dropped=tuple(dropped.values()),
        searched=len(asked),
    )


def _judge(found: Candidate, wanted: Wanted, known: Known) -> Option | Dropped:
    """Guess what one configuration takes, and what the wanted load then costs."""
    plan, slo, mix = found.plan, wanted.slo, wanted.mix
    if plan.ask.context_tokens < mix.prompt:
        why = f"prompts are {mix.prompt:.0f} tokens long, and its context is {plan.ask.context_tokens}"
        return Dropped(label=found.label, kind="its context is too short", why=why)
    fleet = fleets.build(plan, known.speed, wanted.profile)
    guess = screen.guess(fleet, mix, slo) if fleet else None
    fallen = screen.fails(found, fleet, guess)
    if fallen is not None or fleet is None or guess is None:
        return fallen or Dropped(label=found.label, kind="no measured times", why="no measured times")
    far = outside(plan, known.speed, prompt=round(mix.prompt), batch=guess.in_flight)
    slow = max(_WIDEST, known.speed.tpot_high) if far else known.speed.tpot_high
    fast, slower = (screen.guess(fleet, mix, slo, slower=each) for each in (known.speed.tpot_low, slow))
    lanes = fleets.lanes(plan)
    option = Option(
        candidate=found,
        fleet=fleet,
        guess=guess,
        extrapolated=far,
        each=guess.in_flight * lanes,
        each_low=slower.in_flight * lanes,
        each_high=fast.in_flight * lanes,
        replicas=0,
        cards=0,
        cards_low=0,
        cards_high=0,
        usd=known.usd.get(plan.ask.gpu.name),
    )
    return _sized(option, wanted, one_usd=option.usd)


def _sized(option: Option, wanted: Wanted, *, one_usd: float | None, least: int = 1) -> Option:
    """How many replicas, and what they cost; a replica that takes nothing at the slow end takes a part of one."""
    ranks = option.candidate.plan.ask.split.ranks
    low, middle, high = (
        max(least, ceil(wanted.in_flight / max(each, 0.5))) for each in (option.each_high, option.each, option.each_low)
    )
    return replace(
        option,
        replicas=middle,
        cards=middle * ranks,
        cards_low=low * ranks,
        cards_high=high * ranks,
        usd=None if one_usd is None else one_usd * middle * ranks,
    )


def _finalists(options: Sequence[Option], most: int) -> list[Option]:
    """The cheapest, and of each card the cheapest."""
    ordered = sorted(options, key=lambda o: (o.cost, bool(o.extrapolated), -o.each))
    kept: list[Option] = []
    taken: dict[str, int] = {}
    for option in ordered:
        gpu = option.candidate.plan.ask.gpu.name
        if taken.get(gpu, 0) < _OF_A_CARD:
            kept.append(option)
            taken[gpu] = taken.get(gpu, 0) + 1
    return kept[:most]


def simulate(option: Option, wanted: Wanted) -> Option | Dropped:
    """Put a finalist to the proof: the load of one engine, then all replicas under what is wanted."""
    lanes = fleets.lanes(option.candidate.plan)
    first = max(1, round(option.guess.in_flight * _LIKELY))
    most = max(_ENOUGH, _AMPLE * wanted.in_flight / lanes)
    found = capacity.in_flight(option.fleet, wanted.profile, wanted.slo, seeds=1, first=first, most=most)
    if found.load.mean < 1 or found.at is None:
        why = "; ".join(capacity.misses(found.beyond, wanted.slo)) if found.beyond else found.why
        return Dropped(label=option.candidate.label, kind="the simulation misses the bar", why=why)
    scale = found.load.mean * lanes / option.each
    one = option.usd / option.cards if option.usd is not None else None
    sized = replace(
        option,
        capacity=found,
        each=found.load.mean * lanes,
        each_low=option.each_low * scale,
        each_high=option.each_high * scale,
    )
    least = 1
    for _ in range(_TRIES):
        sized = _sized(sized, wanted, one_usd=one, least=least)
        sized = replace(sized, proof=proof(sized, wanted))
        if sized.proof is not None and sized.proof.meets:
            return sized
        least = sized.replicas + max(1, sized.replicas // 8)
    why = "; ".join(capacity.misses(sized.proof, wanted.slo)) if sized.proof else ""
    return Dropped(label=option.candidate.label, kind="replicas do not add up behind the policy", why=why)


def proved(option: Option, wanted: Wanted, *, seeds: int) -> Option:
    """The load that one engine of a chosen option takes, to its end and often enough for an interval."""
    lanes = fleets.lanes(option.candidate.plan)
    first = max(1, round(option.guess.in_flight * _LIKELY))
    found = capacity.in_flight(option.fleet, wanted.profile, wanted.slo, seeds=seeds, first=first)
    scale = found.load.mean * lanes / option.each
    low, high = option.each_low * scale, option.each_high * scale
    return replace(option, capacity=found, each=found.load.mean * lanes, each_low=low, each_high=high)


def settled(option: Option) -> Plan:
    """The plan with as many sequences as its bar allows and a few to spare: more would make all of them slow."""
    plan = option.candidate.plan
    sequences = min(plan.load.sequences, max(8, ceil(option.each / plan.ask.split.data * _ROOM)))
    if plan.long_run is None:
        return replace(plan, load=replace(plan.load, sequences=sequences))
    return replace(plan, long_run=replace(plan.long_run, sequences=sequences))


def proof(option: Option, wanted: Wanted, *, seed: int = 7) -> Score:
    """All replicas under the wanted load."""
    engines = option.replicas * fleets.lanes(option.candidate.plan)
    clients = wanted.sessions or max(1, ceil(wanted.in_flight))
    whole = fleets.larger(option.fleet, engines)
    return fleets.closed(whole, wanted.profile, wanted.slo, clients=clients, seed=seed, pauses=bool(wanted.sessions))


def rank(options: Sequence[Option]) -> list[Option]:
    """Give places: a difference inside the bands decides nothing."""
    placed = [replace(o, place=1 + sum(other.usd_high < o.usd_low for other in options)) for o in options]
    return sorted(placed, key=lambda o: (o.place, *_within(o)))


def _within(option: Option) -> tuple[bool, int, bool, float]:
    """The order of equals: what is known, few cards, wide weights, and only then the middle of the band."""
    ask = option.candidate.plan.ask
    narrowed = ask.split.quantize_to_bytes > 0 or ask.kv_element_bytes < 2
    return (bool(option.extrapolated), option.cards, narrowed, option.cost)


def pareto(options: Sequence[Option]) -> list[Option]:
    """Those to which none is as good in all of cost, first word and pace, and better in one."""

    def figures(option: Option) -> tuple[float, float, float]:
        shown = option.proof
        return (option.cost, shown.visible_ttft.p90, shown.tpot.p90) if shown else (option.cost, 0.0, 0.0)

    told = [(option, figures(option)) for option in options]
    return [
        option
        for option, own in told
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for _, other in told)
    ]
