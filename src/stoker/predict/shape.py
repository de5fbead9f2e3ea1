"""What is a model made of, as far as memory and time depend on it?

Read from a checkpoint's ``config.json``. Each layer says how it attends and what it keeps per token or per sequence;
parts that the reader does not know are named in ``unknown``, never guessed silently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stoker.base.json import Json, JsonObject


class Attends(StrEnum):
    """How a layer looks back."""

    FULL = "full"
    SLIDING = "sliding"  # only the last ``window`` tokens are kept
    CHUNKED = "chunked"  # only the tokens of the present chunk of ``window`` tokens
    LATENT = "latent"  # MLA: one compressed vector for all heads
    SPARSE = "sparse"  # MLA with an indexer that chooses what is looked at (NSA)
    LINEAR = "linear"  # gated delta net: a state per sequence, nothing per token
    STATE = "state"  # Mamba: the same
    NONE = "none"  # feed-forward only


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer. Counts are of the whole model, before any parallelism."""

    attends: Attends
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0  # 0: as head_dim
    window: int = 0
    latent_rank: int = 0
    rope_dim: int = 0
    index_dim: int = 0
    conv_dim: int = 0  # channels of the convolution before a linear or state layer
    conv_width: int = 0
    state_heads: int = 0
    state_rows: int = 0  # the state has heads times rows times columns values
    state_columns: int = 0
    shares_kv: bool = False  # uses the keys and values of an earlier layer
    experts: bool = False  # its feed-forward is a mixture of experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One model. Sizes are counts of elements; 0 means that the model has no such part."""

    layers: tuple[Layer, ...]
    hidden: int
    intermediate: int
    vocab: int
    heads: int
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    shared_experts: int = 0
    context_tokens: int = 0
    draft_layers: int = 0  # multi-token prediction heads that come with the model
    vision: bool = False
    tied: bool = False  # input and output embedding are one tensor
    gated: bool = True  # the feed-forward has a gate beside up and down
    architecture: str = ""
    unknown: tuple[str, ...] = ()

    def count(self, *attends: Attends) -> int:
        """How many layers attend in one of these ways."""
        return sum(layer.attends in attends for layer in self.layers)


_TYPES: Final[Mapping[str, Attends]] = {
    "full_attention": Attends.FULL,
    "attention": Attends.FULL,
    "global": Attends.FULL,
    "sliding_attention": Attends.SLIDING,
    "local": Attends.SLIDING,
    "chunked_attention": Attends.CHUNKED,
    "linear_attention": Attends.LINEAR,
    "mamba": Attends.STATE,
    "mamba2": Attends.STATE,
    "moe": Attends.NONE,
    "mlp": Attends.NONE,
}
_PATTERN: Final[Mapping[str, Attends]] = {"M": Attends.STATE, "*": Attends.FULL, "-": Attends.NONE, "E": Attends.NONE}


class _Config:
    """A config with the several names that one thing has over families."""

    def __init__(self, raw: JsonObject) -> None:
        self._raw = raw

    def number(self, *names: str, default: int = 0) -> int:
        """The first of these fields that is a number (of a list: its largest)."""
        for name in names:
            value = self._raw.get(name)
            if isinstance(value, list):
                value = max((v for v in value if isinstance(v, int)), default=None)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return int(value)
        return default

    def words(self, name: str) -> list[str]:
        """A field that is a list of words."""
        value = self._raw.get(name)
        return [str(v) for v in value] if isinstance(value, list) else []

    def numbers(self, name: str) -> list[int]:
        """A field that is a list of numbers."""
        value = self._raw.get(name)
        return [int(v) for v in value if isinstance(v, int)] if isinstance(value, list) else []

    def text(self, name: str) -> str:
        """A field that is a word."""
        value = self._raw.get(name)
        return value if isinstance(value, str) else ""

    def says(self, name: str, *, default: bool = False) -> bool:
        """A field that is true or false."""
        value = self._raw.get(name)
        return value if isinstance(value, bool) else default

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self._raw.get(name) is not None


def from_config(config: JsonObject) -> Shape:
    """Read a model's config.json; a model of several towers is read at its text part."""
    text = _text_part(config)
    c = _Config(text)
    count = c.number("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    attends, unknown = _attends(c, count)
    experts = c.number("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    outer = _Config(config)
    named = outer.words("architectures")
    layers = tuple(_layer(c, kind, i, count=count, experts=experts) for i, kind in enumerate(attends))
    intermediate = c.number(
        "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", default=4 * c.number("n_embd")
    )
    return Shape(
        layers=layers,
        hidden=c.number("hidden_size", "n_embd", "d_model"),
        intermediate=intermediate,
        vocab=c.number("vocab_size", default=outer.number("vocab_size")),
        heads=c.number("num_attention_heads", "n_head", "num_heads"),
        experts=experts,
        experts_per_token=c.number("num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k", "top_k_experts"),
        expert_intermediate=c.number(
            "moe_intermediate_size", "expert_ffn_hidden_size", default=intermediate if experts else 0
        ),
        shared_experts=_shared(c),
        context_tokens=c.number("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        draft_layers=c.number("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
        vision=any(outer.has(part) for part in ("vision_config", "visual", "audio_config")),
        tied=c.says("tie_word_embeddings", default=outer.says("tie_word_embeddings")),
        gated=c.text("model_type") not in ("gpt2", "phi", "opt", "gpt_neox", "falcon", "bloom", "gpt_bigcode"),
        architecture=named[0] if named else "",
        unknown=unknown,
    )


def _text_part(config: JsonObject) -> JsonObject:
    for name in ("text_config", "llm_config", "language_config"):
        part = config.get(name)
        if isinstance(part, dict):
            return part
    thinker = config.get("thinker_config")
    return _text_part(thinker) if isinstance(thinker, dict) else config


def _shared(c: _Config) -> int:
    if c.number("n_shared_experts", "num_shared_experts"):
        return c.number("n_shared_experts", "num_shared_experts")
    own, one = c.number("shared_expert_intermediate_size"), c.number("moe_intermediate_size", default=1)
    return max(1, own // one) if own else 0


def _attends(c: _Config, count: int) -> tuple[list[Attends], tuple[str, ...]]:
    """Tell for each layer how it attends, and what was not understood."""
    pattern = c.text("hybrid_override_pattern")
    if pattern:
        odd = sorted(set(pattern) - set(_PATTERN))
        return [_PATTERN.get(mark, Attends.NONE) for mark in pattern], tuple(f"layer mark '{m}'" for m in odd)
    types = c.words("layer_types") or c.words("layers_block_type")
    if types:
        odd = sorted(set(types) - set(_TYPES))
        latent = _latent(c)
        found = [latent if (kind := _TYPES.get(t, Attends.FULL)) is Attends.FULL and latent else kind for t in types]
        return found, tuple(f"layer type '{t}'" for t in odd)
    return [_by_rule(c, i, count) for i in range(count)], ()


def _latent(c: _Config) -> Attends | None:
    if not c.number("kv_lora_rank"):
        return None
    return Attends.SPARSE if c.number("index_head_dim", "index_topk") else Attends.LATENT


def _by_rule(c: _Config, index: int, count: int) -> Attends:
    """Configs from before ``layer_types`` say it by periods and offsets."""
    latent = _latent(c)
    if latent:
        return latent
    if c.number("attn_layer_period"):  # Jamba
        full = index % c.number("attn_layer_period") == c.number("attn_layer_offset")
        return Attends.FULL if full else Attends.STATE
    if c.numbers("attn_layer_indices"):  # Bamba
        return Attends.FULL if index in c.numbers("attn_layer_indices") else Attends.STATE
    if c.number("linear_num_value_heads"):  # Qwen3-Next and after
        return Attends.FULL if (index + 1) % c.number("full_attention_interval", default=4) == 0 else Attends.LINEAR
    if c.number("attention_chunk_size"):  # Llama 4: every fourth layer has no positions and sees everything
        nope = c.numbers("no_rope_layers")
        full = nope[index] == 0 if len(nope) == count else (index + 1) % 4 == 0
        return Attends.FULL if full else Attends.CHUNKED
    return Attends.SLIDING if _slides(c, index) else Attends.FULL


def _slides(c: _Config, index: int) -> bool:
    if not c.number("sliding_window") or (c.has("use_sliding_window") and not c.says("use_sliding_window")):
        return False
    if c.number("sliding_window_pattern", "_sliding_window_pattern"):
        return (index + 1) % c.number("sliding_window_pattern", "_sliding_window_pattern") != 0
    kind = c.text("model_type")
    if kind == "gemma2":
        return index % 2 == 0
    if kind.startswith("gemma3"):
        return (index + 1) % 6 != 0
    if kind == "gpt_oss":
        return index % 2 == 0
    return index >= c.number("max_window_layers") if c.has("max_window_layers") else True


def _layer(c: _Config, attends: Attends, index: int, *, count: int, experts: int) -> Layer:
    heads = c.number("num_attention_heads", "n_head", "num_heads", default=1)
    hidden = c.number("hidden_size", "n_embd", "d_model")
    head_dim = c.number("head_dim", "attention_head_dim", default=hidden // heads)
    sparse = bool(experts) and _has_experts(c, index)
    if attends in (Attends.LATENT, Attends.SPARSE):
        return Layer(
            attends=attends,
            latent_rank=c.number("kv_lora_rank"),
            rope_dim=c.number("qk_rope_head_dim"),
            index_dim=c.number("index_head_dim", default=128) if attends is Attends.SPARSE else 0,
            experts=sparse,
        )
    if attends is Attends.LINEAR:
        return _linear(c, sparse=sparse)
    if attends is Attends.STATE:
        return _state(c, sparse=sparse)
    if attends is Attends.NONE:
        return Layer(attends=attends, experts=sparse)
    shared = index >= count - c.number("num_kv_shared_layers")
    return Layer(
        attends=attends,
        kv_heads=_kv_heads(c, attends, heads),
        head_dim=c.number("global_head_dim", default=head_dim) if attends is Attends.FULL else head_dim,
        value_dim=c.number("v_head_dim"),
        window=_window(c, attends),
        shares_kv=shared,
        experts=sparse,
    )


def _kv_heads(c: _Config, attends: Attends, heads: int) -> int:
    if attends is Attends.FULL and c.number("num_global_key_value_heads"):
        return c.number("num_global_key_value_heads")
    default = 1 if c.says("multi_query") else heads
    return c.number("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", default=default)


def _window(c: _Config, attends: Attends) -> int:
    if attends is Attends.SLIDING:
        return c.number("sliding_window")
    return c.number("attention_chunk_size", default=8192) if attends is Attends.CHUNKED else 0


def _linear(c: _Config, *, sparse: bool) -> Layer:
    keys, values = c.number("linear_num_key_heads"), c.number("linear_num_value_heads")
    rows, columns = c.number("linear_key_head_dim"), c.number("linear_value_head_dim")
    return Layer(
        attends=Attends.LINEAR,
        conv_dim=2 * keys * rows + values * columns,
        conv_width=c.number("linear_conv_kernel_dim", default=4),
        state_heads=values,
        state_rows=rows,
        state_columns=columns,
        experts=sparse,
    )


def _state(c: _Config, *, sparse: bool) -> Layer:
    heads, size = c.number("mamba_num_heads", "mamba_n_heads"), c.number("mamba_head_dim", "mamba_d_head")
    inner = heads * size or c.number("mamba_expand", default=2) * c.number("hidden_size")
    columns = c.number("ssm_state_size", "mamba_d_state", default=16)
    groups = c.number("n_groups", "mamba_n_groups", default=0)
    return Layer(
        attends=Attends.STATE,
        conv_dim=inner + 2 * groups * columns,
        conv_width=c.number("conv_kernel", "mamba_d_conv", default=4),
        state_heads=heads or 1,
        state_rows=size or inner,
        state_columns=columns,
        experts=sparse,
    )


def _has_experts(c: _Config, index: int) -> bool:
    """Tell whether the feed-forward of a layer is a mixture: some layers of most families are dense."""
    if index < c.number("first_k_dense_replace") or index in c.numbers("mlp_only_layers"):
        return False
    marked = c.numbers("moe_layers")
    if marked:
        return index in marked
    step = c.number(
        "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "expert_layer_period", default=1
    )
    offset = c.number("expert_layer_offset", default=step - 1)
    return step <= 1 or index % step == offset


def known_parts(layers: Sequence[Layer]) -> dict[str, Json]:
    """Count layers by how they attend, for showing."""
    return {kind.value: n for kind in Attends if (n := sum(layer.attends is kind for layer in layers))}
