"""Predicted beside observed: likely causes, and what a start teaches the next plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.test_fits import H100, LLAMA_8B, TABLE, ask

from stoker.predict import fits, seen
from stoker.predict.coefficients import GIB, learned
from stoker.predict.seen import Case

PLAN = fits.plan(ask(LLAMA_8B, H100), TABLE)
EXPECTED = seen.expected(PLAN)


def case(**changes: object) -> Case:
    told: dict = {
        "at": 1.0,
        "engine": "vllm",
        "version": "0.19.1",
        "gpu": H100.name,
        "model": "llama",
        "context_tokens": 8192,
        "predicted_weight_bytes": EXPECTED.weights,
        "predicted_cache_bytes": EXPECTED.cache,
        "predicted_cache_tokens": EXPECTED.tokens,
        "weight_bytes": EXPECTED.weights,
        "cache_bytes": EXPECTED.cache,
        "cache_tokens": EXPECTED.tokens,
    }
    return Case(**(told | changes))


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        pytest.param({}, "weights", "", id="as planned"),
        pytest.param({"weight_bytes": EXPECTED.weights / 2}, "weights", "quantised", id="half the weights"),
        pytest.param({"weight_bytes": EXPECTED.weights * 2}, "weights", "wider dtype", id="twice the weights"),
        pytest.param({"weight_bytes": EXPECTED.weights * 1.2}, "weights", "vision tower", id="more weights"),
        pytest.param({"weight_bytes": EXPECTED.weights * 0.9}, "weights", "not loaded", id="less weights"),
        pytest.param({"cache_bytes": EXPECTED.cache * 0.8}, "KV cache", "another process", id="a smaller cache"),
        pytest.param({"cache_bytes": EXPECTED.cache * 1.2}, "KV cache", "--utilization", id="a larger cache"),
        pytest.param(
            {"weight_bytes": EXPECTED.weights * 2, "cache_bytes": EXPECTED.cache * 0.7},
            "KV cache",
            "as the weights differ",
            id="weights and cache",
        ),
        pytest.param({"cache_tokens": EXPECTED.tokens * 2}, "KV tokens", "FP8", id="an FP8 cache"),
        pytest.param({"cache_tokens": EXPECTED.tokens // 2}, "KV tokens", "16 bits", id="a wide cache"),
        pytest.param({"cache_tokens": int(EXPECTED.tokens * 1.3)}, "KV tokens", "layout", id="another layout"),
        pytest.param({"seen_context_tokens": 4096}, "context", "--context", id="another context"),
    ],
)
def test_the_likely_cause_is_named(changes: dict[str, object], what: str, words: str) -> None:
    side = next(side for side in seen.sides(case(**changes)) if side.name == what)

    assert words in side.why
    assert bool(side.why) == bool(words)
    assert side.error is not None


def test_what_was_not_observed_is_not_compared() -> None:
    only = case(weight_bytes=None, cache_bytes=None)

    assert [side.name for side in seen.sides(only)] == ["KV tokens"]
    assert only.extra_bytes is None


@given(extra=st.floats(-3, 10))
def test_the_next_plan_counts_what_a_start_took_beyond(extra: float) -> None:
    table = seen.taught(TABLE, [case(cache_bytes=EXPECTED.cache - extra * GIB)])
    after = fits.plan(ask(LLAMA_8B, H100), table)

    assert after.budget.cache.size_bytes == pytest.approx(EXPECTED.cache - extra * GIB, abs=1e3)
    assert sum(term.size_bytes for term in after.budget.terms) == pytest.approx(H100.total_bytes)
    assert after.budget.term("learned here").source.startswith("1 starts on this card")


def test_several_starts_give_a_median_and_their_own_band() -> None:
    table = seen.taught(TABLE, [case(cache_bytes=EXPECTED.cache - extra * GIB) for extra in (1.0, 1.2, 5.0)])
    found = learned(table, "vllm", "0.19.3", H100.name)
    assert found is not None
    assert found.spread is not None
    after = fits.plan(ask(LLAMA_8B, H100), table).budget.cache

    assert (found.extra_gib, found.cases) == (pytest.approx(1.2), 3)
    assert after.low_bytes == pytest.approx(EXPECTED.cache - 5.0 * GIB, abs=1e3)
    assert after.high_bytes == pytest.approx(EXPECTED.cache - 1.0 * GIB, abs=1e3)


@pytest.mark.parametrize(
    ("engine", "version", "gpu"),
    [("vllm", "0.18.0", H100.name), ("sglang", "0.19.0", H100.name), ("vllm", "0.19.0", "L40S-48GB")],
)
def test_other_versions_engines_and_cards_learn_nothing(engine: str, version: str, gpu: str) -> None:
    assert learned(seen.taught(TABLE, [case(cache_bytes=1.0)]), engine, version, gpu) is None


def test_heavier_weights_are_no_overhead() -> None:
    heavier = case(weight_bytes=EXPECTED.weights + GIB, cache_bytes=EXPECTED.cache - GIB)

    assert heavier.extra_bytes == pytest.approx(0.0, abs=1.0)
