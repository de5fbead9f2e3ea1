"""Money: the guide's figure, and what must hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.predict import cost
from stoker.predict.cost import Hosted, Mix


def test_the_guides_price_of_a_million_tokens() -> None:
    assert cost.per_million(2.90, 1200) == pytest.approx(0.67, abs=0.005)


@pytest.mark.parametrize("use", [0.3, 0.6, 1.0])
def test_idle_time_is_paid(use: float) -> None:
    assert cost.per_million(2.90, 1200, use=use) == pytest.approx(cost.per_million(2.90, 1200) / use)


@pytest.mark.parametrize(("usd", "rate", "use"), [(-1, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1.1)])
def test_what_cannot_be_is_refused(usd: float, rate: float, use: float) -> None:
    with pytest.raises(Invalid):
        cost.per_million(usd, rate, use=use)


def test_cached_tokens_have_their_own_price_where_there_is_one() -> None:
    mix = Mix(input=0.2, cached=0.6, output=0.2)

    assert cost.hosted_per_million(Hosted(input_usd=1, output_usd=5, cached_usd=0.1), mix) == pytest.approx(1.26)
    assert cost.hosted_per_million(Hosted(input_usd=1, output_usd=5), mix) == pytest.approx(1.8)


@given(usd=st.floats(0.1, 100), hosted=st.floats(0.01, 100))
def test_at_the_break_even_both_cost_the_same(usd: float, hosted: float) -> None:
    tokens = cost.break_even(usd, hosted)

    assert tokens / 1e6 * hosted == pytest.approx(usd * 730)


def test_free_hosting_is_never_beaten() -> None:
    assert cost.break_even(1.0, 0.0) == float("inf")
