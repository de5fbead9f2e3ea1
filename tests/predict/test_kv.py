"""KV arithmetic against published start-up logs, and what must hold for every shape."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.figures import CASES, shape

from stoker.predict import kv
from stoker.predict.kv import Cut
from stoker.predict.shape import Attends, Layer, Shape

GIB = 2**30


def _element(case: dict) -> float:
    if str(case.get("kv_dtype")).startswith("fp8"):
        return 1.0
    return 4.0 if case.get("dtype") == "float32" else 2.0


def _told(case: dict) -> float | None:
    """The relative error of the predicted tokens, or None for a row that does not say enough."""
    model = shape(case["model"])
    if model is None or not case.get("kv_cache_gib") or not case.get("kv_cache_tokens") or case["engine"] != "vllm":
        return None
    if (case.get("pp") or 1) > 1:
        return None  # the log has one rank's bytes, and the rank with the least decides
    cut = Cut(
        ranks=case["tp"],
        element_bytes=_element(case),
        block_tokens=case.get("block_size") or 16,
        batch_tokens=case.get("max_num_batched_tokens") or 8192,
    )
    pool = kv.vllm(model, cut, cache_bytes=case["kv_cache_gib"] * GIB, length=case["max_model_len"])
    # Before 0.20 vLLM printed blocks over groups, later the length times the requests that fit.
    found = (pool.logged_tokens, pool.tokens)
    return min(abs(tokens / case["kv_cache_tokens"] - 1) for tokens in found)


def test_tokens_from_bytes_are_right_on_every_published_log(capsys: pytest.CaptureFixture[str]) -> None:
    errors = {case["id"]: error for case in CASES if (error := _told(case)) is not None}
    with capsys.disabled():
        worst = max(errors, key=lambda name: errors[name])
        print(f"KV tokens from KV bytes, {len(errors)} logs: median {statistics.median(errors.values()):.4%}")
        print(f"largest error {errors[worst]:.3%} ({worst})")

    assert len(errors) >= 60
    assert statistics.median(errors.values()) <= 0.001
    assert max(errors.values()) <= 0.012


@pytest.mark.parametrize(
    ("layer", "want"),
    [
        pytest.param(Layer(attends=Attends.FULL, kv_heads=8, head_dim=128), 4096, id="grouped query"),
        pytest.param(Layer(attends=Attends.LATENT, latent_rank=512, rope_dim=64), 1152, id="MLA"),
        pytest.param(
            Layer(attends=Attends.FULL, kv_heads=8, head_dim=128, shares_kv=True), 0, id="shared with an earlier layer"
        ),
        pytest.param(
            Layer(attends=Attends.LINEAR, conv_dim=8, conv_width=4, state_heads=1, state_rows=1, state_columns=1),
            0,
            id="state",
        ),
    ],
)
def test_bytes_of_one_layer(layer: Layer, want: float) -> None:
    assert kv.token_bytes(layer, Cut()) == want


def test_llama_3_70b_keeps_320_kib_a_token_and_40_gib_at_128k() -> None:
    model = Shape(
        layers=(Layer(attends=Attends.FULL, kv_heads=8, head_dim=128),) * 80,
        hidden=8192,
        intermediate=28672,
        vocab=128256,
        heads=64,
    )

    assert kv.bytes_per_token(model, Cut()) == 320 * 1024
    assert kv.bytes_per_session(model, Cut(), 131072) == 40 * GIB


def test_sparse_mla_in_fp8_is_what_sglang_logs() -> None:
    layer = Layer(attends=Attends.SPARSE, latent_rank=512, rope_dim=64, index_dim=128)
    model = Shape(layers=(layer,) * 61, hidden=7168, intermediate=18432, vocab=129280, heads=128)
    pool = kv.sglang(model, Cut(element_bytes=1.0, block_tokens=64), cache_bytes=43.67 * GIB, length=8192)

    assert pool.tokens == pytest.approx(975_424, rel=0.001)


def test_llama_cpp_divides_its_context_by_its_slots() -> None:
    assert kv.llama_cpp(context_tokens=16384, slots=4).block_tokens == 4096


layers = st.sampled_from(
    [
        Layer(attends=Attends.FULL, kv_heads=8, head_dim=128),
        Layer(attends=Attends.SLIDING, kv_heads=8, head_dim=128, window=1024),
        Layer(attends=Attends.CHUNKED, kv_heads=8, head_dim=128, window=8192),
    ]
)


@given(
    stack=st.lists(layers, min_size=1, max_size=12),
    gib=st.floats(0.5, 200),
    more=st.floats(0, 50),
    length=st.integers(1, 200_000),
    further=st.integers(0, 100_000),
)
def test_more_memory_never_holds_less_and_longer_requests_are_never_more(
    stack: list[Layer], gib: float, more: float, length: int, further: int
) -> None:
    model = Shape(layers=tuple(stack), hidden=4096, intermediate=1, vocab=1, heads=32)
    base = kv.vllm(model, Cut(), cache_bytes=gib * GIB, length=length)

    assert kv.vllm(model, Cut(), cache_bytes=(gib + more) * GIB, length=length).blocks >= base.blocks
    assert kv.vllm(model, Cut(), cache_bytes=gib * GIB, length=length + further).requests <= base.requests
    assert kv.bytes_per_session(model, Cut(), length + further) >= kv.bytes_per_session(model, Cut(), length)
