"""How many tokens does a KV cache of so many bytes hold?

Per layer the bytes per token follow from its shape; how an engine cuts its memory into blocks is its own arithmetic, by
version. Sources: vLLM's KV cache groups (kv_cache_utils.py), SGLang's token pool, llama.cpp's cells; checked against
start-up logs in ``tests/data/planner``.

bytes per token and rank, b = bytes of one element, TP = tensor parallel ranks:

* full, sliding, chunked: ``2 · max(1, kv_heads / TP) · head_dim · b``
* MLA: ``(kv_lora_rank + qk_rope) · b``, the same on every rank
* sparse MLA (NSA): as MLA in BF16, 656 bytes in FP8, plus an indexer of ``index_dim + 4`` bytes
* linear and state layers keep nothing per token but a state per sequence: ``conv_dim / TP · (width - 1) · 2`` plus
  ``heads / TP · rows · columns · 4``
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from stoker.predict.shape import Attends, Layer, Shape

_NSA_FP8_BYTES: Final = 656  # 512 values, 4 scales of 4 bytes, 64 rope values in BF16
_STATEFUL: Final = (Attends.LINEAR, Attends.STATE)
_EVEN_ENOUGH: Final = 1.5  # vLLM pads the smaller kind when the larger has less than this many times its layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How the cache is cut. ``element_bytes`` 2 for BF16, 1 for FP8."""

    ranks: int = 1
    element_bytes: float = 2.0
    block_tokens: int = 16
    speculative_tokens: int = 0
    batch_tokens: int = 8192  # the scheduler's budget: what a sliding window must hold besides itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What a cache of some size holds. ``tokens``: at full-length requests; ``logged_tokens``: as vLLM prints it."""

    blocks: int
    block_tokens: int
    tokens: int
    logged_tokens: int
    requests: float  # of the wanted length at once


def token_bytes(layer: Layer, cut: Cut) -> float:
    """Bytes that one layer keeps for one token on one rank."""
    if layer.shares_kv or layer.attends in (*_STATEFUL, Attends.NONE):
        return 0.0
    if layer.attends is Attends.LATENT:
        return (layer.latent_rank + layer.rope_dim) * cut.element_bytes
    if layer.attends is Attends.SPARSE:
        plain = (layer.latent_rank + layer.rope_dim) * cut.element_bytes
        return (plain if cut.element_bytes > 1 else _NSA_FP8_BYTES) + layer.index_dim + 4
    heads = max(1.0, layer.kv_heads / cut.ranks)
    return heads * (layer.head_dim + (layer.value_dim or layer.head_dim)) * cut.element_bytes


def state_bytes(layer: Layer, cut: Cut) -> float:
    """Bytes that one layer keeps for one sequence on one rank, however long it is."""
    if layer.attends not in _STATEFUL:
        return 0.0
    steps = layer.conv_width - 1 + cut.speculative_tokens
    convolution = layer.conv_dim / cut.ranks * steps * 2
    return convolution + layer.state_heads / cut.ranks * layer.state_rows * layer.state_columns * 4


def bytes_per_token(shape: Shape, cut: Cut) -> float:
    """Bytes per token and rank over all layers, as long as no window is full."""
    return sum(token_bytes(layer, cut) for layer in shape.layers)


def bytes_per_session(shape: Shape, cut: Cut, tokens: int) -> float:
    """Bytes that one session of ``tokens`` keeps on one rank: windows stop growing, states do not grow."""
    kept = 0.0
    for layer in shape.layers:
        held = min(tokens, layer.window) if layer.window else tokens
        kept += held * token_bytes(layer, cut) + state_bytes(layer, cut)
    return kept


def vllm(shape: Shape, cut: Cut, *, cache_bytes: float, length: int) -> Pool:
    """VLLM's pool: layers of one kind form groups of equal size that share blocks."""
    layers = [layer for layer in shape.layers if not layer.shares_kv and layer.attends is not Attends.NONE]
    kinds = _kinds(layers)
    block = _block(kinds, cut)
    size = _group_size([len(kind) for kind in kinds])
    page = max(token_bytes(kind[0], cut) * block for kind in kinds if kind[0].attends not in _STATEFUL)
    blocks = int(cache_bytes // (size * page))
    need = sum(_need(kind[0], block=block, length=length, cut=cut) * ceil(len(kind) / size) for kind in kinds)
    groups = sum(ceil(len(kind) / size) for kind in kinds)
    requests = blocks / need
    return Pool(
        blocks=blocks,
        block_tokens=block,
        tokens=int(requests * length),
        logged_tokens=blocks // groups * block,
        requests=requests,
    )


def sglang(shape: Shape, cut: Cut, *, cache_bytes: float, length: int) -> Pool:
    """SGLang's pool: single tokens (``block_tokens`` is its page size), the same for all layers."""
    page = max(1, cut.block_tokens)
    tokens = int(cache_bytes // bytes_per_token(shape, cut)) // page * page
    return Pool(blocks=tokens // page, block_tokens=page, tokens=tokens, logged_tokens=tokens, requests=tokens / length)


def llama_cpp(*, context_tokens: int, slots: int) -> Pool:
    """llama.cpp's cells: made at the start for the whole context, and divided by the slots."""
    each = context_tokens // slots
    return Pool(
        blocks=slots, block_tokens=each, tokens=context_tokens, logged_tokens=context_tokens, requests=float(slots)
    )


def _kinds(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Group layers that keep the same thing."""
    kinds: dict[tuple[Attends, int], list[Layer]] = {}
    for layer in layers:
        kinds.setdefault((layer.attends, layer.window), []).append(layer)
    return list(kinds.values())


def _group_size(counts: Sequence[int]) -> int:
    """How many layers a group has: the smaller kind's number, unless padding it up to the larger wastes little."""
    least, most = min(counts), max(counts)
    return most if most < least * _EVEN_ENOUGH else least


def _block(kinds: Sequence[Sequence[Layer]], cut: Cut) -> int:
    """Tokens of a block: as configured, or as many as make an attention page hold one sequence's state."""
    stateful = [kind[0] for kind in kinds if kind[0].attends in _STATEFUL]
    attending = [kind[0] for kind in kinds if kind[0].attends not in _STATEFUL]
    if not stateful or not attending:
        return cut.block_tokens
    state = max(state_bytes(layer, cut) for layer in stateful)
    token = min(token_bytes(layer, cut) for layer in attending)
    return ceil(state / token / 16) * 16


def _need(layer: Layer, *, block: int, length: int, cut: Cut) -> int:
    """Blocks that one request of ``length`` needs in one group of this kind."""
    if layer.attends in _STATEFUL:
        return 2 + cut.speculative_tokens
    if layer.attends is Attends.SLIDING:
        return ceil(min(layer.window - 1 + cut.batch_tokens, length) / block) + 1
    if layer.attends is Attends.CHUNKED:
        return ceil(min(layer.window + cut.batch_tokens, length) / block)
    return ceil(length / block)
