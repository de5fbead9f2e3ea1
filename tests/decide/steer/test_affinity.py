"""A prompt goes where its beginning is cached, on every gateway alike, and a hot one spreads."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.route import Choice, Why, route
from stoker.decide.steer.affinity import CANDIDATES, bound, fraction, order, seed
from stoker.facts.routes import Target


@dataclass
class Replica:
    seed: int
    running: int = 0
    slots: int = 0
    serving: bool = True
    ejected_until: float = 0.0


def fleet(count: int, **fields: int) -> dict[str, Replica]:
    return {f"r{n}": Replica(seed(f"r{n}-1"), **fields) for n in range(count)}


def targets(loads: dict[str, Replica]) -> tuple[Target, ...]:
    return (Target(endpoints=tuple(loads)),)


def choose(loads: dict[str, Replica], key: int, draw: float = 0.5) -> Choice:
    return route(targets(loads), loads, now=0.0, draw=draw, key=key)


KEYS = st.integers(1, 2**64 - 1)


@given(KEYS, st.integers(2, 40), st.floats(0, 1, exclude_max=True))
def test_two_gateways_agree_whatever_they_draw(key: int, count: int, draw: float) -> None:
    loads = fleet(count)
    here, there = choose(loads, key, draw), choose(dict(reversed(loads.items())), key, 0.0)

    assert here.why is Why.HOME
    assert here.endpoint == there.endpoint


@given(KEYS, st.integers(3, 20))
def test_only_the_keys_of_a_lost_replica_move(key: int, count: int) -> None:
    loads = fleet(count)
    home = choose(loads, key).endpoint
    other = next(name for name in loads if name != home)
    without = {name: load for name, load in loads.items() if name != other}

    if count <= CANDIDATES:
        assert choose(without, key).endpoint == home


def test_a_restarted_replica_loses_its_affinity_at_once() -> None:
    loads = fleet(3)
    mine = [key for key in map(seed, map(str, range(3000))) if choose(loads, key).endpoint == "r1"]
    loads["r1"] = Replica(seed("r1-2"))  # the same name, a new incarnation

    kept = sum(choose(loads, key).endpoint == "r1" for key in mine)
    assert 0.2 < kept / len(mine) < 0.5  # by chance a third comes back, as to any replica that is new


@pytest.mark.parametrize("count", [2, 3, 8, 30])
def test_keys_are_shared_evenly(count: int) -> None:
    loads = fleet(count)
    homes = Counter(choose(loads, seed(str(n))).endpoint for n in range(6000))

    assert max(homes.values()) / (6000 / count) < 1.5
    assert min(homes.values()) > 0


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_hot_prefix_spreads(count: int) -> None:
    """One key for all: the most loaded replica never runs more than half again the mean."""
    loads = fleet(count)
    for n in range(40 * count):
        loads[choose(loads, 12345).endpoint].running += 1
        mean = (n + 1) / count
        if mean >= 4:
            assert max(load.running for load in loads.values()) / mean <= 1.5


def test_sessions_stay_where_they_were() -> None:
    """Forty sessions of ten turns at once over three replicas: at least 95 of 100 later turns find their replica."""
    loads, last, stayed, turns = fleet(3), {}, 0, 0
    for turn in range(10):
        running = []
        for session in range(40):
            at = choose(loads, seed(f"session {session}")).endpoint
            loads[at].running += 1
            running.append(at)
            stayed += turn > 0 and last[session] == at
            turns += turn > 0
            last[session] = at
        for at in running:
            loads[at].running -= 1
    assert stayed / turns >= 0.95


def test_a_full_home_is_left_for_the_next_in_order_and_waited_at_when_all_are_full() -> None:
    loads = fleet(3, slots=2)
    key = seed("k")
    wanted = [f"r{at}" for at in order(key, [load.seed for load in loads.values()])]
    loads[wanted[0]].running = 2
    assert choose(loads, key) == Choice(wanted[1], Why.AWAY)
    for load in loads.values():
        load.running = 2
    assert choose(loads, key) == Choice(wanted[0], Why.FULL)


def test_a_session_stays_on_its_side_of_a_split() -> None:
    loads = fleet(4)
    split = (Target(endpoints=("r0", "r1"), weight=9), Target(endpoints=("r2", "r3")))
    sides = {}
    for n in range(2000):
        key = seed(str(n))
        ends = {route(split, loads, now=0.0, draw=draw, key=key).endpoint for draw in (0.0, 0.5, 0.99)}
        assert len(ends) == 1
        sides[n] = ends.pop() in ("r2", "r3")
    assert 0.07 < sum(sides.values()) / 2000 < 0.13


@given(KEYS)
def test_a_fraction_is_one(key: int) -> None:
    assert 0 <= fraction(key) < 1


@given(st.integers(0, 1000), st.integers(1, 50))
def test_the_bound_leaves_room_for_one_more(total: int, count: int) -> None:
    assert bound(total, count) * count > total


REPLICA = st.builds(Replica, st.integers(1, 2**64 - 1), st.integers(0, 9), st.integers(0, 8))


@given(KEYS, st.lists(REPLICA, min_size=2, max_size=10, unique_by=lambda one: one.seed))
def test_the_straight_way_home_leads_where_the_long_one_does(key: int, replicas: list[Replica]) -> None:
    """A failed endpoint, though it is none of them, keeps a request from the short way."""
    loads = {f"r{n}": replica for n, replica in enumerate(replicas)}
    long = route(targets(loads), loads, now=0.0, draw=0.5, key=key, failed=("nobody",))

    assert choose(loads, key).endpoint == long.endpoint
