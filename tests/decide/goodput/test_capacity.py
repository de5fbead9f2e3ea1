"""Capacity by simulation: the largest load within the bar, behind the gateway's own policies."""

from dataclasses import replace
from random import Random

import pytest
from tests.predict.test_fits import H100, LLAMA_8B, plan

from stoker.decide.goodput import behind, capacity
from stoker.decide.goodput import fleet as fleets
from stoker.decide.goodput.fleet import Fleet
from stoker.drivers import figures
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Batch, Request
from stoker.predict.batching.score import Slo, interval
from stoker.predict.timing import roofline
from stoker.predict.timing.rows import Served, work
from stoker.predict.timing.steps import Steps
from stoker.predict.traffic.profile import PROFILES

CHAT = PROFILES["chat"]
SLO = Slo(visible_ttft_p90_seconds=2.0, tpot_p90_seconds=1 / 25)
SPEED = figures.speed()


def fleet(engines: int = 1) -> Fleet:
    found = fleets.build(plan(LLAMA_8B, H100, context_tokens=16_384), SPEED, CHAT, replicas=engines)
    assert found is not None
    return found


def test_single_steps_are_the_rooflines() -> None:
    served = Served(
        shape=LLAMA_8B, gpu=H100, engine="vllm", dense="bf16", sparse="bf16", ranks=2, expert_ranks=2, spread=False,
        prompt=2048.0, output=512.0, batch=16.0,
    )  # fmt: skip
    row = work([served])
    found, steps = roofline.times(row, SPEED.coefficients), Steps(row, SPEED.coefficients)

    assert steps(Batch(16, 16 * (2048 + 256))) == pytest.approx(float(found.step[0]))
    assert steps(Batch(0, 0, 2048, 2048**2 / 2)) == pytest.approx(float(found.prefill[0]))


def test_the_capacity_meets_the_bar_and_a_little_more_does_not() -> None:
    made = fleet()
    found = capacity.in_flight(made, CHAT, SLO, seeds=3)

    assert found.at is not None
    assert found.beyond is not None
    assert found.at.meets
    assert not found.beyond.meets
    assert capacity.misses(found.beyond, SLO)
    assert found.load.low <= found.load.mean <= found.load.high
    assert found.load.runs == 3
    assert found.why


def test_a_softer_bar_and_more_engines_never_take_less() -> None:
    soft = replace(SLO, tpot_p90_seconds=1 / 15)
    tight, wide, two = (
        capacity.in_flight(made, CHAT, bar, seeds=1, first=64).load.mean
        for made, bar in ((fleet(), SLO), (fleet(), soft), (fleet(2), SLO))
    )

    assert wide >= tight
    assert two == pytest.approx(2 * tight, rel=0.25)


def test_a_smaller_cache_never_takes_more() -> None:
    def taken(blocks: int) -> float:
        made = fleet()
        made = replace(made, limits=replace(made.limits, blocks=blocks))
        return capacity.in_flight(made, CHAT, SLO, seeds=1, first=32).load.mean

    found = [taken(blocks) for blocks in (1500, 6000, 24_000)]
    assert found[0] < 0.7 * found[2]
    assert found[0] <= found[1] * 1.1 <= found[2] * 1.21


def test_a_bar_that_nothing_meets_is_told() -> None:
    found = capacity.in_flight(fleet(), CHAT, Slo(visible_ttft_p90_seconds=1e-4, tpot_p90_seconds=1e-4), seeds=1)

    assert found.at is None
    assert found.load.mean == 0


def test_people_pause_so_more_of_them_fit() -> None:
    made = fleet()

    assert capacity.users(made, CHAT, SLO, seeds=1, first=64).load.mean > (
        2 * capacity.in_flight(made, CHAT, SLO, seeds=1, first=64).load.mean
    )


def test_an_open_load_is_answered_at_its_rate() -> None:
    found = capacity.per_second(fleet(), CHAT, SLO, seeds=1, first=4.0)

    assert found.at is not None
    assert found.at.requests_per_second == pytest.approx(found.load.mean, rel=0.35)


def test_sessions_go_home_where_their_prefix_is_cached() -> None:
    agents, made = PROFILES["agent-cached"], fleet(4)
    short = replace(agents, head_tokens=0)
    cached = {
        name: fleets.closed(replace(made, policy=name), short, SLO, clients=6, seed=3).cached_share
        for name in ("RoundRobin", "PrefixCache")
    }

    assert cached["PrefixCache"] > cached["RoundRobin"] + 0.1


@pytest.mark.parametrize("name", ["RoundRobin", "LeastLoad", "PrefixCache"])
def test_every_policy_names_an_engine_and_a_key_always_the_same(name: behind.Policy) -> None:
    machines = [Machine(fleet().limits, lambda _: 1.0) for _ in range(3)]
    route = behind.policy(machines, name, Random(1))
    places = [route(Request(10, 10, session=5), 0.0) for _ in range(6)]

    assert set(places) <= {0, 1, 2}
    assert len(set(places)) == (1 if name == "PrefixCache" else 3)


def test_what_has_no_rows_is_not_simulated() -> None:
    assert fleets.build(plan(LLAMA_8B, H100, engine="llama.cpp", version=""), SPEED, CHAT) is None


def test_an_interval_needs_more_than_one_run() -> None:
    assert interval([3.0]).high == float("inf")
    assert interval([1.0, 2.0, 3.0]).low == pytest.approx(0.0, abs=0.5)
    assert interval([2.0] * 4).low == interval([2.0] * 4).high == 2.0
