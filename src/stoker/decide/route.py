"""Which endpoint answers this request?

Five rules, in this order:

1. Only endpoints that may serve: in state ``serve``, and none that this request has already failed on. Ejected ones
   only when there is no other: trying one is better than refusing for certain.
2. A lower priority number goes first; the next one is used only when no endpoint of the first may serve.
3. Among the targets of one priority the weights decide, by a number that the caller draws, or that the key gives.
4. Inside a target a request with a key (its session, or the head of its prompt) goes where the key is at home: see
   `stoker.decide.steer.affinity`.
5. Without a key the least loaded endpoint with a free slot wins; when all are full, the least loaded one, to wait at.

Ties are broken by the same number, so equal inputs always give the same answer.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from math import inf
from operator import itemgetter
from typing import Protocol

import msgspec

from stoker.decide.steer import affinity
from stoker.facts.routes import Target


class Why(StrEnum):
    """The reason for a choice, as metrics and errors show it."""

    FREE = "LeastLoaded"
    HOME = "PromptIsCachedThere"
    AWAY = "HomeIsTooLoaded"
    FULL = "AllSlotsTaken"
    NONE = "NoEndpointServes"


class Load(Protocol):
    """What is known about an endpoint at this moment."""

    @property
    def serving(self) -> bool:
        """Whether its state is ``serve``."""

    @property
    def running(self) -> int:
        """Requests that it works on now."""

    @property
    def slots(self) -> int:
        """Requests that it can work on at once; 0: no cap."""

    @property
    def ejected_until(self) -> float:
        """When it may be tried again."""

    @property
    def seed(self) -> int:
        """Its incarnation in 64 bits; see `stoker.decide.steer.affinity.seed`."""


class Choice(msgspec.Struct, frozen=True):
    """The endpoint's name, or an empty one, and the reason."""

    endpoint: str
    why: Why


# By their names in the module: an enum's member is looked up by a Python call before Python 3.12.
_FREE, _FULL, _HOME, _AWAY = Why.FREE, Why.FULL, Why.HOME, Why.AWAY
_by_score = itemgetter(0)
_NOBODY = Choice("", Why.NONE)


def route(  # noqa: PLR0913 -- each is a fact about one request
    targets: Sequence[Target],
    loads: Mapping[str, Load],
    *,
    now: float,
    draw: float,
    failed: Collection[str] = (),
    key: int = 0,
    turn: int = -1,
) -> Choice:
    """Choose an endpoint; ``targets`` are sorted by priority, ``draw`` is a number from 0 to 1 (exclusive).

    ``key`` is what the request shares with others whose prompt begins alike, 0: nothing. ``turn`` counts requests where
    the endpoints take them in turn, whatever they have to do; negative: they do not.
    """
    if len(targets) == 1 and len(targets[0].endpoints) == 1:  # the usual case on one machine
        name = targets[0].endpoints[0]
        load = loads.get(name)
        if load is None or not load.serving or name in failed or targets[0].weight <= 0:
            return _NOBODY
        return Choice(name, _FREE if not load.slots or load.running < load.slots else _FULL)
    if key and len(targets) == 1 and not failed:
        home = _straight_home(targets[0], loads, key, now)
        if home is not None:
            return home
    usable = _usable(targets, loads, now, failed) or _usable(targets, loads, inf, failed)
    if not usable:
        return _NOBODY
    if key:
        draw = affinity.fraction(key)
    free = [
        (target, open_) for target, names in usable if (open_ := [name for name in names if _has_room(loads[name])])
    ]
    names = _weighted(free or usable, draw)
    if key and len(names) > 1:
        every = next(there for _, there in usable if names[0] in there)
        return _at_home(every, names, loads, key, full=not free)
    chosen = names[turn % len(names)] if turn >= 0 else _least(names, loads, draw)
    return Choice(chosen, _FREE if free else _FULL)


def _straight_home(target: Target, loads: Mapping[str, Load], key: int, now: float) -> Choice | None:
    """Go home, or as near to it as its load allows; None: the long way must decide, which leads to the same place."""
    names = target.endpoints
    if len(names) > affinity.CANDIDATES or target.weight <= 0:
        return None
    ranked: list[tuple[int, str, Load]] = []
    for name in names:
        load = loads.get(name)
        if load is None or not load.serving or load.ejected_until > now:
            return None
        ranked.append((affinity.score(key, load.seed), name, load))
    ranked.sort(key=_by_score, reverse=True)
    _, home, load = ranked[0]
    slots, there = load.slots, load.running
    if there < affinity.QUIET and (not slots or there < slots):
        return Choice(home, _HOME)
    running = [there, *(load.running for _, _, load in ranked[1:])]
    most = affinity.bound(sum(running), len(names))
    for (_, name, load), there in zip(ranked, running, strict=True):
        slots = load.slots
        if there < most and (not slots or there < slots):
            return Choice(name, _HOME if name == home else _AWAY)
    return None


def _least(names: list[str], loads: Mapping[str, Load], draw: float) -> str:
    if len(names) == 1:
        return names[0]
    least = min(loads[name].running for name in names)
    ties = [name for name in names if loads[name].running == least]
    return ties[int(draw * 1_000_003) % len(ties)]  # the weights have used the leading digits


def _at_home(every: list[str], names: list[str], loads: Mapping[str, Load], key: int, *, full: bool) -> Choice:
    """Choose among ``names``, those of ``every`` endpoint of the target that have room."""
    wanted = [every[at] for at in affinity.order(key, [loads[name].seed for name in every])]
    if full:
        return Choice(wanted[0], Why.FULL)
    running = {name: loads[name].running for name in every}
    most = affinity.bound(sum(running.values()), len(every))
    for name in wanted:
        if name in names and running[name] < most:
            return Choice(name, Why.HOME if name == wanted[0] else Why.AWAY)
    return Choice(min(names, key=lambda name: running[name]), Why.AWAY)


def _usable(
    targets: Sequence[Target], loads: Mapping[str, Load], now: float, failed: Collection[str]
) -> list[tuple[Target, list[str]]]:
    """Find the targets of the first priority that has an endpoint which may serve."""
    usable: list[tuple[Target, list[str]]] = []
    for target in targets:
        if usable and target.priority != usable[0][0].priority:
            break
        names = [name for name in target.endpoints if name not in failed and _may_serve(loads.get(name), now)]
        if names and target.weight > 0:
            usable.append((target, names))
    return usable


def _may_serve(load: Load | None, now: float) -> bool:
    return load is not None and load.serving and load.ejected_until <= now


def _has_room(load: Load) -> bool:
    slots = load.slots
    return not slots or load.running < slots


def _weighted(usable: Sequence[tuple[Target, list[str]]], draw: float) -> list[str]:
    if len(usable) == 1:
        return usable[0][1]
    at = draw * sum(target.weight for target, _ in usable)
    for target, names in usable:
        at -= target.weight
        if at < 0:
            return names
    return usable[-1][1]


EJECT_AFTER = 3  # consecutive faults: one may be the request's own
EJECT_FIRST = 2.0
EJECT_MOST = 60.0


def eject(faults: int, *, now: float) -> float:
    """Say until when an endpoint with that many consecutive faults is left alone; 0: it is not.

    Faults are failed connections, broken answers and silence. An HTTP error is none: bad prompts must not take a fleet
    down.
    """
    if faults < EJECT_AFTER:
        return 0.0
    return now + min(EJECT_MOST, EJECT_FIRST * 2.0 ** min(faults - EJECT_AFTER, 10))
