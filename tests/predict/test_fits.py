"""Budgets that add up, sessions, what breaks first, and a setting that holds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.figures import MODELS, shape

from stoker.base.errors import Invalid
from stoker.drivers import figures
from stoker.predict import estimate, fits
from stoker.predict.coefficients import GIB
from stoker.predict.fits import Ask, Plan
from stoker.predict.gpu import Gpu, find
from stoker.predict.overhead import Load
from stoker.predict.roles import Split
from stoker.predict.shape import Shape

TABLE = figures.coefficients()
H100, H200, A100, L40S = (find(figures.gpus(), name) for name in ("h100", "h200", "a100", "l40s"))


def model(name: str, context: int = 131072) -> Shape:
    found = shape(name)
    assert found is not None
    return replace(found, context_tokens=context)


LLAMA_8B = model("meta-llama/Llama-3.1-8B-Instruct")
LLAMA_70B = model("meta-llama/Llama-3.1-70B-Instruct")


def ask(shape: Shape, gpu: Gpu, **changes: object) -> Ask:
    told: dict = {
        "parts": estimate.parts(shape),
        "shape": shape,
        "gpu": gpu,
        "version": "0.19.0",
        "context_tokens": 8192,
    }
    return Ask(**(told | changes))


def plan(shape: Shape, gpu: Gpu, **changes: object) -> Plan:
    return fits.plan(ask(shape, gpu, **changes), TABLE)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("version", ["0.10.0", "0.19.0", "0.21.0"])
@pytest.mark.parametrize("gpu", [H100, L40S], ids=lambda gpu: gpu.name)
def test_the_terms_add_up_to_the_card(engine: str, version: str, gpu: Gpu) -> None:
    found = plan(LLAMA_8B, gpu, engine=engine, version=version if engine == "vllm" else "")

    assert sum(term.size_bytes for term in found.budget.terms) - found.budget.missing_bytes == pytest.approx(
        gpu.total_bytes
    )
    assert all(term.size_bytes >= 0 and term.source for term in found.budget.terms)
    assert found.sessions_low <= found.sessions <= found.sessions_high
    assert found.sessions > 0


def test_a_published_start_is_found_again() -> None:
    load = Load(utilization=0.95, batch_tokens=8192, sequences=1024)
    found = plan(LLAMA_8B, H100, load=load)
    assert found.pool is not None

    assert found.budget.cache.size_bytes / GIB == pytest.approx(58.11, rel=0.003)
    assert found.pool.logged_tokens == pytest.approx(58.11 * GIB / 131072, rel=0.003)


def test_70b_on_two_cards_of_80_gb_is_served_in_fp8() -> None:
    wanted = ask(LLAMA_70B, H100, split=Split(tensor=2), context_tokens=32768, sessions=5)
    best, other = fits.choose(wanted, TABLE)

    assert best.ask.split.quantize_to_bytes == 1
    assert best.fits
    assert not other.fits
    assert "the KV cache" in other.breaks_first or "are missing" in other.breaks_first
    assert other.sessions == 0


def test_full_precision_is_kept_where_it_holds_what_is_wanted() -> None:
    assert fits.choose(ask(LLAMA_8B, H100, sessions=8), TABLE)[0].ask.split.quantize_to_bytes == 0


def test_what_does_not_start_says_what_is_missing() -> None:
    found = plan(LLAMA_70B, H100)

    assert (found.sessions, found.pool) == (0, None)
    assert found.budget.missing_bytes > 50 * GIB
    assert "missing, weights is the largest part" in found.breaks_first


@pytest.mark.parametrize(
    ("gpu", "share_gib"), [pytest.param(H100, 3.17, id="H100"), pytest.param(H200, 5.59, id="H200")]
)
def test_a_lower_share_and_fewer_sequences_leave_more_free(gpu: Gpu, share_gib: float) -> None:
    before = plan(LLAMA_8B, gpu, load=Load(utilization=0.92))
    after = plan(LLAMA_8B, gpu, load=Load(utilization=0.88, sequences=16))
    terms = {term.name: term for term in fits.difference(before, after)}
    least = sum(term.size_bytes if term.low_bytes is None else term.low_bytes for term in terms.values()) / GIB
    most = sum(term.size_bytes if term.high_bytes is None else term.high_bytes for term in terms.values()) / GIB

    assert terms["utilization"].size_bytes / GIB == pytest.approx(share_gib, abs=0.01)
    assert (least <= 4.6 <= most) == (gpu is H100)  # what one report measured, on a card that it does not name


def test_the_long_run_setting_keeps_a_reserve_for_each_reason() -> None:
    found = plan(LLAMA_8B, H100, load=Load(utilization=0.92))
    assert found.long_run is not None
    reserves = {term.name for term in found.long_run.reserves}
    needed = sum(term.size_bytes for term in found.long_run.reserves)

    assert reserves == {"graph pools", "what the formulas missed", "fragmentation"}
    assert all(term.source for term in found.long_run.reserves)
    assert found.long_run.utilization <= 1 - needed / H100.total_bytes
    assert found.long_run.utilization == pytest.approx(0.88, abs=0.01)
    assert found.long_run.sessions < found.sessions


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param(
            {"context_tokens": 200_000}, "200000 tokens are more than the model's limit of 131072", id="context"
        ),
        pytest.param({"split": Split(tensor=3)}, "cannot be divided by 3", id="heads"),
        pytest.param({"engine": "vlm"}, "no engine 'vlm'.*did you mean 'vllm'", id="engine"),
        pytest.param({"version": "new"}, "'new' is no version", id="version"),
        pytest.param({"load": Load(utilization=1.5)}, "no share of a card", id="share"),
        pytest.param({"sessions": -1}, "cannot be negative", id="negative"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        plan(LLAMA_8B, H100, **changes)


def test_fp8_on_a_card_without_it_is_a_stated_fall_back() -> None:
    assert any("weight-only" in note for note in plan(LLAMA_8B, A100, quantization="fp8").notes)
    assert not any("weight-only" in note for note in plan(LLAMA_8B, H100, quantization="fp8").notes)


def test_an_unknown_card_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(Invalid, match=r"no GPU 'h1000'.*H100"):
        find(figures.gpus(), "h1000")


def test_the_ridge_of_an_h100() -> None:
    assert H100.ridge(H100.bf16_tflops) == pytest.approx(295, abs=1)


def test_8b_in_16_bits_leaves_two_thirds_of_an_l40s() -> None:
    weights = plan(LLAMA_8B, L40S).weights.total_bytes

    assert weights == pytest.approx(16e9, rel=0.02)
    assert 1 - weights / L40S.total_bytes == pytest.approx(2 / 3, abs=0.02)


def test_320b_in_fp8_is_320_gb_resident() -> None:
    base = MODELS["qwen/qwen3-235b-a22b-fp8"].shape
    grown = replace(base, experts=round(base.experts * 320 / 235))
    parts = estimate.parts(grown, linear_bytes=1.0)

    assert parts.total_bytes == pytest.approx(320e9, rel=0.02)


names = st.sampled_from(["meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b", "google/gemma-2-9b-it"])
versions = st.sampled_from(["0.10.0", "0.19.0", "0.21.0"])


@given(
    name=names,
    version=versions,
    gib=st.floats(24, 200),
    more=st.floats(0, 100),
    context=st.integers(1, 60_000),
    further=st.integers(0, 60_000),
)
def test_more_context_never_holds_more_and_more_memory_never_less(
    name: str, version: str, gib: float, more: float, context: int, further: int
) -> None:
    small = Gpu(name="card", total_bytes=int(gib * GIB), bandwidth_gbs=1.0, native=())
    large = Gpu(name="card", total_bytes=int((gib + more) * GIB), bandwidth_gbs=1.0, native=())
    load = Load(utilization=0.9, batch_tokens=2048, sequences=256)
    base = plan(model(name), small, version=version, load=load, context_tokens=context)
    longer = plan(model(name), small, version=version, load=load, context_tokens=context + further)
    larger = plan(model(name), large, version=version, load=load, context_tokens=context)

    assert longer.sessions <= base.sessions <= larger.sessions
    assert larger.budget.cache.size_bytes >= base.budget.cache.size_bytes
    if base.pool is not None:
        assert larger.pool is not None
        assert larger.pool.tokens >= base.pool.tokens
