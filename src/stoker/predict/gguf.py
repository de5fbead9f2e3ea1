"""What is a model made of, as a GGUF header tells it? Its keys are turned into the fields of a config."""

from collections.abc import Mapping, Sequence
from typing import Final

from stoker.base.json import Json, JsonObject
from stoker.predict.roles import Tensor
from stoker.predict.shape import Shape, from_config

_FIELDS: Final = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.indexer.key_length": "index_head_dim",
    "attention.chunk_size": "attention_chunk_size",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
    "nextn_predict_layers": "num_nextn_predict_layers",
    "full_attention_interval": "full_attention_interval",
}
_KINDS: Final = {"gpt-oss": "gpt_oss"}


def from_gguf(
    keys: Mapping[str, int | float | bool | str], arrays: Mapping[str, Sequence[int]], tensors: Sequence[Tensor]
) -> Shape:
    """Read a GGUF header's keys, its short arrays (a number for each layer) and its tensors."""
    kind = str(keys.get("general.architecture", ""))
    config: JsonObject = {"model_type": _KINDS.get(kind, kind), "architectures": [kind]}
    for name, field in _FIELDS.items():
        value = keys.get(f"{kind}.{name}")
        if value is None and (each := arrays.get(f"{kind}.{name}")):
            value = max(each)
        if value is not None:
            config[field] = value
    config |= _latent(keys, kind) | _state(keys, kind)
    names = {tensor.name: tensor for tensor in tensors}
    table = names.get("token_embd.weight")
    if table is not None and "vocab_size" not in config:
        config["vocab_size"] = table.shape[-1]
    config["tie_word_embeddings"] = "output.weight" not in names
    config |= _types(arrays.get(f"{kind}.attention.head_count_kv", ()), keys, kind)
    return from_config(config)


def _latent(keys: Mapping[str, int | float | bool | str], kind: str) -> JsonObject:
    if f"{kind}.attention.kv_lora_rank" not in keys:
        return {}
    return {"qk_rope_head_dim": keys.get(f"{kind}.rope.dimension_count", 64), "v_head_dim": 0}


def _state(keys: Mapping[str, int | float | bool | str], kind: str) -> JsonObject:
    """State layers: the same keys describe Mamba and, in the Qwen families, gated delta nets."""

    def number(name: str) -> int:
        value = keys.get(f"{kind}.ssm.{name}", 0)
        return int(value) if isinstance(value, int) else 0

    if not number("inner_size"):
        return {}
    heads = max(1, number("time_step_rank"))
    if kind.startswith("qwen"):
        return {
            "linear_num_key_heads": number("group_count"),
            "linear_num_value_heads": heads,
            "linear_key_head_dim": number("state_size"),
            "linear_value_head_dim": number("inner_size") // heads,
            "linear_conv_kernel_dim": number("conv_kernel"),
        }
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": number("inner_size") // heads,
        "ssm_state_size": number("state_size"),
        "n_groups": number("group_count"),
        "conv_kernel": number("conv_kernel"),
    }


def _types(heads: Sequence[int], keys: Mapping[str, int | float | bool | str], kind: str) -> JsonObject:
    """Where layers without key-value heads lie between others, they are state layers."""
    if not heads or all(heads) or f"{kind}.ssm.inner_size" not in keys:
        return {}
    types: list[Json] = ["full_attention" if n else "mamba" for n in heads]
    return {"layer_types": types}
