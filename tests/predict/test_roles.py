"""Which bytes lie on which rank: names of the families, shares by role, and what a start-up log said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.predict.figures import CASES, shape

from stoker.base.errors import Invalid
from stoker.predict import estimate, roles
from stoker.predict.roles import Part, Parts, Role, Split, Tensor
from stoker.predict.shape import Attends, Layer, Shape

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("model.embed_tokens.weight", Role.EMBEDDING),
        ("transformer.wte.weight", Role.EMBEDDING),
        ("token_embd.weight", Role.EMBEDDING),
        ("lm_head.weight", Role.HEAD),
        ("output.weight", Role.HEAD),
        ("output_norm.weight", Role.NORM),
        ("model.layers.3.self_attn.q_proj.weight", Role.ATTENTION),
        ("model.layers.3.self_attn.k_proj.weight_scale", Role.KEYS_VALUES),
        ("model.layers.3.self_attn.k_norm.weight", Role.NORM),
        ("model.layers.3.self_attn.qkv_proj.weight", Role.FUSED),
        ("transformer.h.0.attn.c_attn.weight", Role.FUSED),
        ("blk.0.attn_v.weight", Role.KEYS_VALUES),
        ("blk.0.attn_output.weight", Role.ATTENTION),
        ("model.layers.3.self_attn.kv_a_proj_with_mqa.weight", Role.LATENT),
        ("model.layers.3.self_attn.kv_a_layernorm.weight", Role.NORM),
        ("model.layers.3.self_attn.kv_b_proj.weight", Role.LATENT_UP),
        ("model.layers.3.self_attn.indexer.wk.weight", Role.INDEXER),
        ("model.layers.3.linear_attn.in_proj_qkvz.weight", Role.STATE),
        ("backbone.layers.0.mixer.A_log", Role.STATE),
        ("model.layers.3.mlp.gate_proj.weight", Role.DENSE),
        ("model.layers.3.mlp.gate.weight", Role.ROUTER),
        ("model.layers.3.mlp.gate.e_score_correction_bias", Role.ROUTER),
        ("model.layers.3.mlp.experts.17.down_proj.weight_scale_inv", Role.EXPERTS),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", Role.EXPERTS),
        ("model.layers.3.block_sparse_moe.experts.1.w2.weight", Role.EXPERTS),
        ("model.layers.3.block_sparse_moe.gate.weight", Role.ROUTER),
        ("blk.3.ffn_gate_exps.weight", Role.EXPERTS),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", Role.SHARED),
        ("model.layers.3.mlp.shared_expert_gate.weight", Role.ROUTER),
        ("visual.blocks.3.attn.qkv.weight", Role.VISION),
        ("multi_modal_projector.linear_1.weight", Role.VISION),
        ("mtp.layers.0.mlp.gate_proj.weight", Role.DRAFT),
        ("model.layers.61.self_attn.q_proj.weight", Role.DRAFT),
        ("model.mystery.weight", Role.UNKNOWN),
    ],
)
def test_a_name_tells_the_role(name: str, want: Role) -> None:
    assert roles.role(name, layers=61) is want


def plain(**changes: object) -> Shape:
    layer = Layer(attends=Attends.FULL, kv_heads=2, head_dim=64)
    told: dict = {"layers": (layer,) * 4, "hidden": 512, "intermediate": 1024, "vocab": 1000, "heads": 8}
    return Shape(**(told | changes))


@pytest.mark.parametrize(
    ("role", "split", "want"),
    [
        pytest.param(Role.ATTENTION, Split(tensor=4), 1 / 4, id="queries are divided"),
        pytest.param(Role.KEYS_VALUES, Split(tensor=4), 1 / 2, id="fewer heads than ranks: each has one"),
        pytest.param(Role.FUSED, Split(tensor=4), 4 / 12, id="a fused tensor is both"),
        pytest.param(Role.LATENT, Split(tensor=4), 1.0, id="MLA's first projections are whole"),
        pytest.param(Role.NORM, Split(tensor=4), 1.0, id="norms are whole"),
        pytest.param(Role.EXPERTS, Split(tensor=2, data=4, expert=True), 1 / 8, id="experts go over all ranks"),
        pytest.param(Role.VISION, Split(tensor=4), 1 / 4, id="vision is divided"),
        pytest.param(Role.VISION, Split(tensor=4, replicate_vision=True), 1.0, id="or whole"),
        pytest.param(Role.UNKNOWN, Split(tensor=4), 1.0, id="what is unknown is not divided"),
    ],
)
def test_share_of_a_rank(role: Role, split: Split, want: float) -> None:
    assert roles.share(role, plain(), split) == pytest.approx(want)


def test_a_tied_head_counts_once_and_returns_on_the_last_stage() -> None:
    names = ("model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.up_proj.weight")
    tensors = [Tensor(name=name, dtype="BF16", shape=(500,), size_bytes=1000) for name in names]
    model = plain(tied=True)
    parts = roles.tally(tensors, model)

    assert roles.rank(parts, model, Split()).by_role == {Role.EMBEDDING: 1000, Role.DENSE: 1000}
    assert roles.rank(parts, model, Split(pipeline=2)).total_bytes == 2000


def test_drafts_are_loaded_only_for_speculation() -> None:
    tensor = Tensor(name="model.layers.4.mlp.up_proj.weight", dtype="BF16", shape=(500,), size_bytes=1000)
    parts = roles.tally([tensor], plain())

    assert roles.rank(parts, plain(), Split()).total_bytes == 0
    assert roles.rank(parts, plain(), Split(draft=True)).total_bytes == 1000


def _case(name: str) -> dict:
    return next(case for case in CASES if case["id"] == name)


@pytest.mark.parametrize(
    ("name", "changes", "context", "within"),
    [
        pytest.param("llmd-meta-llama-llama-3-1-8b---h100-80gb--tp1pp1dp1--8192", {}, 131072, 0.01, id="one card"),
        pytest.param("llmd-meta-llama-llama-3-1-8b---h100-80gb--tp4pp1dp1--8192", {}, 131072, 0.01, id="TP 4"),
        pytest.param("llmd-meta-llama-llama-3-1-8b---h100-80gb--tp1pp2dp1--8192", {}, 131072, 0.01, id="PP 2"),
        pytest.param(
            "llmd-meta-llama-llama-3--h100-80gb--tp1pp1dp1--8192-dtf32", {"element_bytes": 4}, 131072, 0.01, id="to F32"
        ),
        pytest.param(
            "llmd-meta-llama-llama-3---h100-80gb--tp1pp1dp1--8192-qfp8",
            {"quantize_to_bytes": 1.0},
            131072,
            0.01,
            id="FP8 on load",
        ),
        pytest.param(
            "llmd-meta-llama-llama-4-scout--h100-80gb--tp4pp1dp1--8192",
            {},
            10 * 2**20,
            0.02,
            id="2.5 GiB of rotary table, and a vision tower that is divided",
        ),
    ],
)
def test_weights_of_a_rank_are_what_the_log_says(name: str, changes: dict, context: int, within: float) -> None:
    case = _case(name)
    found = shape(case["model"])
    assert found is not None
    model = Shape(
        **{field: getattr(found, field) for field in Shape.__dataclass_fields__} | {"context_tokens": context}
    )
    reckoned = estimate.parts(model)
    missing = int(case["checkpoint_gib"] * GIB) - reckoned.total_bytes  # norms, and the vision tower where there is one
    role = Role.VISION if model.vision else Role.NORM
    parts = Parts(parts=(*reckoned.parts, Part(role=role, layer=-1, dtype="BF16", size_bytes=max(0, missing))))
    split = Split(tensor=case["tp"], pipeline=case["pp"], **changes)

    assert roles.rank(parts, model, split).total_bytes / GIB == pytest.approx(case["weights_gib"], rel=within)


@pytest.mark.parametrize(
    ("split", "words"),
    [
        pytest.param(Split(tensor=3), r"8 attention heads cannot be divided by 3.*possible: 1, 2, 4, 8", id="heads"),
        pytest.param(Split(pipeline=5), "4 layers cannot be divided into 5 stages", id="stages"),
        pytest.param(Split(expert=True), "no experts", id="experts of a dense model"),
        pytest.param(Split(tensor=0), "at least 1", id="nothing"),
    ],
)
def test_what_no_engine_can_divide_is_refused(split: Split, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        roles.check(plain(), split)


@given(tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.integers(1, 4))
def test_ranks_together_hold_at_least_the_model_and_one_rank_is_the_single_gpu(tensor: int, pipeline: int) -> None:
    model = plain()
    parts = estimate.parts(model)
    one = roles.rank(parts, model, Split())
    each = roles.rank(parts, model, Split(tensor=tensor, pipeline=pipeline))

    assert sum(one.by_role.values()) == parts.total_bytes
    assert each.total_bytes * tensor * pipeline >= one.total_bytes * (1 - 1e-9)
    assert each.total_bytes <= one.total_bytes


def test_the_guides_small_model_is_16_gb_and_leaves_two_thirds_of_an_l40s() -> None:
    model = shape("meta-llama/Llama-3.1-8B-Instruct")
    assert model is not None
    size = roles.rank(estimate.parts(model), model, Split()).total_bytes

    assert size == pytest.approx(16e9, rel=0.02)
    assert 1 - size / 48e9 == pytest.approx(2 / 3, abs=0.01)
