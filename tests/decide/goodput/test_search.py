"""Search: what falls out and why, places that the band allows, prices that add up to the hour, growth."""

from collections import Counter
from dataclasses import replace
from datetime import date
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.test_fits import LLAMA_8B, TABLE

from stoker.base.errors import Invalid
from stoker.decide.goodput import prices, search
from stoker.decide.goodput.candidates import Space, Variant, asks
from stoker.decide.goodput.search import Known, Option, Result, Wanted
from stoker.drivers import figures
from stoker.predict import cost, estimate
from stoker.predict.batching.score import Slo
from stoker.predict.cost import Effort, Hosted, Rates
from stoker.predict.gpu import find
from stoker.predict.traffic.mix import mix
from stoker.predict.traffic.profile import PROFILES
from stoker.predict.traffic.sources import shorter

CARDS = [find(figures.gpus(), name) for name in ("h100-sxm", "l40s", "t4", "a100-sxm-80")]
CHAT = shorter(PROFILES["chat"], 8192)
SLO = Slo(visible_ttft_p90_seconds=2.0, tpot_p90_seconds=1 / 40)
WANTED = Wanted(profile=CHAT, mix=mix(CHAT), slo=SLO, in_flight=10.0, sessions=40)
SPACE = Space(
    variants=[Variant(name="m", parts=estimate.parts(LLAMA_8B), shape=LLAMA_8B, format="safetensors")],
    gpus=CARDS,
    engines=["vllm@0.19.0", "llama.cpp"],
    context_tokens=8192,
    most_cards=2,
)
KNOWN = Known(memory=TABLE, speed=figures.speed(), usd={"H100-SXM-80GB": 3.0, "A100-SXM-80GB": 1.5})


@cache
def found() -> Result:
    return search.search(SPACE, WANTED, KNOWN, tell=lambda _what, _done, _total: None)


def test_every_configuration_is_ranked_or_falls_out_with_a_reason() -> None:
    result = found()
    kinds = Counter(dropped.kind for dropped in result.dropped)

    assert result.searched == len(list(asks(SPACE)))
    assert kinds["no measured times for llama.cpp"] > 0
    assert kinds["it does not start"] > 0  # 16 GB of weights on a T4
    assert all(dropped.why and dropped.label for dropped in result.dropped)


def test_what_is_ranked_was_simulated_within_the_bar() -> None:
    for option in (*found().options, *found().unpriced):
        assert option.proof is not None
        assert option.proof.meets
        assert option.capacity is not None
        assert option.cards == option.replicas * option.candidate.plan.ask.split.ranks
        assert option.cards_low <= option.cards <= option.cards_high


def test_cards_without_a_price_are_ranked_apart_by_cards() -> None:
    assert {o.candidate.plan.ask.gpu.name for o in found().unpriced} <= {"L40S-48GB", "T4-16GB"}
    assert found().unpriced
    assert all(o.usd is None for o in found().unpriced)
    assert {o.candidate.plan.ask.gpu.name for o in found().options} == {"H100-SXM-80GB", "A100-SXM-80GB"}


def made(usd: float, *, low: int, middle: int, high: int) -> Option:
    base = found().options[0]
    return replace(base, usd=usd * middle, cards=middle, cards_low=low, cards_high=high, extrapolated=())


@given(
    st.lists(
        st.tuples(st.floats(0.5, 9), st.integers(1, 5), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=8
    )
)
def test_no_place_is_decided_inside_the_band(drawn: list[tuple[float, int, int, int]]) -> None:
    options = [made(usd, low=low, middle=low + m, high=low + m + h) for usd, low, m, h in drawn]
    ranked = search.rank(options)

    assert ranked[0].place == 1
    for one in ranked:
        surely = sum(other.usd_high < one.usd_low for other in ranked)
        assert one.place == surely + 1
    assert [o.place for o in ranked] == sorted(o.place for o in ranked)


def test_a_cheaper_one_with_a_wide_band_stands_behind_what_is_known() -> None:
    known, wild = made(3.0, low=1, middle=1, high=1), made(1.0, low=1, middle=1, high=30)
    ranked = search.rank([replace(wild, extrapolated=("a card like none",)), known])

    assert [(o.place, bool(o.extrapolated)) for o in ranked] == [(1, False), (1, True)]
    sure = made(1.0, low=1, middle=1, high=2)
    assert [(o.place, o.cards_high) for o in search.rank([known, sure])] == [(1, 2), (2, 1)]


def test_the_pareto_front_has_none_that_another_beats() -> None:
    front = found().pareto

    assert front
    for one in front:
        for other in found().options:
            assert one.proof is not None
            assert other.proof is not None
            own = (one.cost, one.proof.visible_ttft.p90, one.proof.tpot.p90)
            theirs = (other.cost, other.proof.visible_ttft.p90, other.proof.tpot.p90)
            assert theirs == own or not all(a <= b for a, b in zip(theirs, own, strict=True))


def test_a_load_twice_as_large_never_takes_fewer_cards() -> None:
    def cards(load: float) -> int:
        small = replace(SPACE, gpus=CARDS[:1], engines=["vllm@0.19.0"], most_cards=1)
        asked = replace(WANTED, in_flight=load, sessions=0)
        return search.search(small, asked, KNOWN, tell=lambda _a, _b, _c: None).options[0].cards

    assert cards(20.0) <= cards(200.0)


@given(
    rates=st.builds(Rates, input=st.floats(1, 1e5), cached=st.floats(0, 1e5), output=st.floats(1, 1e5)),
    effort=st.builds(Effort, input=st.floats(1e-6, 1e-2), cached=st.floats(0, 1e-3), output=st.floats(1e-6, 1e-2)),
    usd=st.floats(0.1, 100),
    use=st.floats(0.05, 1),
)
def test_the_prices_of_all_tokens_are_the_hour(rates: Rates, effort: Effort, usd: float, use: float) -> None:
    told = cost.prices(usd, rates, effort, use=use)
    second = rates.input * told.input_usd + rates.cached * told.cached_usd + rates.output * told.output_usd

    assert second * use * 3600 / 1e6 == pytest.approx(usd, rel=1e-6)


def test_money_says_where_a_hosted_price_is_even() -> None:
    best = search.proved(found().options[0], WANTED, seeds=2)
    told = prices.money(
        best, WANTED, [Hosted(input_usd=3, cached_usd=0.3, output_usd=15), Hosted(input_usd=0.0, output_usd=0.0)]
    )
    assert told is not None
    dear, free = told.against

    assert told.planned.output_usd > told.at[-1].output_usd  # idle time is paid
    assert told.planned.cached_usd < told.planned.input_usd < told.planned.output_usd
    assert dear.break_even_tokens / 1e6 * dear.per_million_usd == pytest.approx(told.month_usd)
    assert dear.cheaper_at_home == (told.month_tokens > dear.break_even_tokens)
    assert free.break_even_tokens == float("inf")
    assert prices.money(found().unpriced[0], WANTED, []) is None


def test_a_growth_tells_when_replicas_are_full() -> None:
    option = replace(found().options[0], replicas=1, each=60.0)
    asked = replace(WANTED, in_flight=30.0)
    steps = prices.growth(option, asked, factor=16.0, today=date(2026, 1, 1), by=date(2026, 12, 31))

    assert steps[0].replicas == 1
    assert steps[0].day == date(2026, 4, 2)  # twice is a quarter of sixteen times on a straight logarithm
    assert [step.day for step in steps] == sorted(step.day for step in steps)
    assert prices.needed(option, asked, 16.0) == 8
    with pytest.raises(Invalid, match="more than 1x"):
        prices.growth(option, asked, factor=1.0, today=date(2026, 1, 1), by=date(2026, 2, 1))
