"""Which bytes of a checkpoint lie on which rank?

Every tensor has a role by its name, and its true size comes from the header: never dtype times parameters, for one
checkpoint mixes precisions, carries scales, and may hold the same values twice. Per rank, by role:

* attention, feed-forward, state layers, embedding and head: a share of 1 / TP
* keys and values: a share of whole heads; with fewer heads than ranks each rank has one
* experts: a share of 1 / (TP times DP), cut or whole (EP) alike
* norms, routers, MLA's first projections, indexers: whole on every rank
* vision: a share of 1 / TP (vLLM since 0.11 at its default; a start-up log of Llama 4 at TP 4 agrees); whole where the
  engine replicates it
* draft heads: only when speculation is asked for
* pipeline stages: their layers; the embedding with the first, the head with the last

What an engine adds when it loads: the rotary table (context times rope dimensions), and MLA's absorbed copies of the
second projection, both in the model's dtype. Names that are not known are listed, and counted whole on every rank.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.predict.shape import Attends, Shape


class Role(StrEnum):
    """What a tensor is for."""

    EMBEDDING = "embedding"
    HEAD = "head"
    ATTENTION = "attention"
    KEYS_VALUES = "keys and values"
    FUSED = "fused attention"  # queries, keys and values in one tensor
    LATENT = "latent down"  # MLA's first projections
    LATENT_UP = "latent up"  # MLA's second projection of keys and values
    INDEXER = "indexer"
    STATE = "state layers"
    DENSE = "feed-forward"
    EXPERTS = "experts"
    SHARED = "shared experts"
    ROUTER = "router"
    NORM = "norms"
    VISION = "vision and audio"
    DRAFT = "draft"
    UNKNOWN = "unknown"


# The first pattern that is found decides. Names of safetensors (transformers) and of GGUF (llama.cpp) side by side.
_NAMES: Final = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"(^|\.)mtp(\.|_)|nextn|eagle|medusa", Role.DRAFT),
        (
            r"vision|visual|audio|image_newline|projector|^v\.|^mm\.|(^|\.)vit\.|patch_(embed|merger)|speech",
            Role.VISION,
        ),
        (r"\.indexer\.|\.indexer_|attn_indexer|indexer\.", Role.INDEXER),
        (r"shared_expert_gate|ffn_gate_inp|\.router\.|\.gate\.(weight|bias|e_score|wg)|exp_probs_b", Role.ROUTER),
        (r"norm|\.ln_\d|ln_f|ln_\d\.", Role.NORM),
        (r"shared_expert|_shexp", Role.SHARED),
        (r"\.experts\.|_exps|block_sparse_moe", Role.EXPERTS),
        (r"kv_b_proj|attn_kv_b|attn_k_b|attn_v_b", Role.LATENT_UP),
        (r"q_a_proj|kv_a_proj|attn_q_a|attn_kv_a|fused_qkv_a", Role.LATENT),
        (r"linear_attn|mamba|ssm_|\.mixer\.(in_proj|out_proj|conv1d|a_log|d$|dt_)", Role.STATE),
        (r"qkv_proj|c_attn\.|query_key_value|attn_qkv|wqkv|in_proj_qkv", Role.FUSED),
        (r"\.(k|v)_proj|attn_(k|v)\.|\.w(k|v)\.|\.(key|value)\.", Role.KEYS_VALUES),
        (r"attn|attention|\.(q|o|out)_proj|\.w(q|o)\.|sinks|rotary|\.mixer\.", Role.ATTENTION),
        (r"mlp|feed_forward|ffn|(gate|up|down)_proj|\.fc\d|\.w[123]\.|c_fc|dense_", Role.DENSE),
        (r"embed_tokens|wte\.|token_embd|word_embeddings|embed_in|tok_embeddings|(^|\.)embeddings?\.", Role.EMBEDDING),
        (r"wpe\.|position_embd|embed_positions|rope_freqs|rope_factors|freqs", Role.NORM),
        (r"lm_head|^output\.|embed_out|\.output\.weight$", Role.HEAD),
    )
)
_LAYER: Final = re.compile(r"(?:layers|blocks|h|blk)\.(\d+)\.")
_FLOATS: Final = {"F32": 4, "F16": 2, "BF16": 2}
_LINEAR: Final = (
    Role.ATTENTION,
    Role.KEYS_VALUES,
    Role.FUSED,
    Role.LATENT,
    Role.LATENT_UP,
    Role.STATE,
    Role.DENSE,
    Role.EXPERTS,
    Role.SHARED,
)
_WHOLE: Final = (Role.LATENT, Role.INDEXER, Role.ROUTER, Role.NORM, Role.UNKNOWN)
_ABSORBED: Final = 2  # bytes of an element of the absorbed copies: they are made in BF16


class Tensor(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # a plan makes a hundred thousand
    """One tensor of a header. ``dtype`` as the file names it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Bytes of one role in one layer (-1: outside the layers) and one dtype."""

    role: Role
    layer: int
    dtype: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A checkpoint by role. ``estimated``: by arithmetic from the config, for want of headers."""

    parts: tuple[Part, ...]
    unknown: tuple[str, ...] = ()
    estimated: bool = False

    @property
    def total_bytes(self) -> int:
        """All bytes in the files."""
        return sum(part.size_bytes for part in self.parts)

    def by_role(self) -> dict[Role, int]:
        """Bytes of each role that is there."""
        return {role: int(size) for role, size in _sum((p.role, p.size_bytes) for p in self.parts).items()}

    def by_dtype(self) -> dict[str, int]:
        """Bytes of each dtype that is there."""
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.dtype] = found.get(part.dtype, 0) + part.size_bytes
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a model is divided over ranks. ``quantize_to_bytes``: what linear layers become on load; 0: as they are."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    replicate_vision: bool = False
    draft: bool = False
    element_bytes: int = 2  # of the dtype that the engine computes in
    quantize_to_bytes: float = 0

    @property
    def ranks(self) -> int:
        """Cards in all."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes on the rank with most of them. ``added``: what the engine makes besides the checkpoint, by name."""

    by_role: Mapping[Role, float]
    added: Mapping[str, float] = field(default_factory=dict)
    stage: int = 0

    @property
    def total_bytes(self) -> float:
        """All bytes of the rank."""
        return sum(self.by_role.values()) + sum(self.added.values())


class _Place(NamedTuple):
    role: Role
    layer: int  # -1: outside the layers


@lru_cache(maxsize=16384)
def _place(name: str) -> _Place:
    lowered = name.lower()
    where = _LAYER.search(name)
    found = next((role for regex, role in _NAMES if regex.search(lowered)), Role.UNKNOWN)
    return _Place(found, int(where[1]) if where and found is not Role.VISION else -1)


def _placed(name: str, layers: int) -> _Place:
    """Where a tensor belongs. All experts of a layer are alike: a big checkpoint has a hundred thousand of them."""
    head, expert, _ = name.partition(".experts.")
    found = _place(head + expert if expert else name)
    return _Place(Role.DRAFT, found.layer) if layers and found.layer >= layers else found


def role(name: str, *, layers: int = 0) -> Role:
    """Tell a tensor's role by its name; a layer beyond the model's own ``layers`` is a draft head."""
    return _placed(name, layers).role


def tally(tensors: Iterable[Tensor], shape: Shape) -> Parts:
    """Sum the tensors of a checkpoint by role, layer and dtype."""
    sums: dict[tuple[_Place, str], int] = {}
    unknown: list[str] = []
    layers = len(shape.layers)
    for tensor in tensors:
        place = _placed(tensor.name, layers)
        if place.role is Role.UNKNOWN:
            unknown.append(tensor.name)
        sums[place, tensor.dtype] = sums.get((place, tensor.dtype), 0) + tensor.size_bytes
    parts = (Part(role=at.role, layer=at.layer, dtype=dtype, size_bytes=size) for (at, dtype), size in sums.items())
    return Parts(parts=tuple(parts), unknown=tuple(unknown))


def check(shape: Shape, split: Split) -> None:
    """Refuse a division that no engine can make; raises Invalid with every fault."""
    faults = [
        Fault(message=f"{name} parallelism must be at least 1", field=f"--{name[0]}p")
        for name, size in (("tensor", split.tensor), ("pipeline", split.pipeline), ("data", split.data))
        if size < 1
    ]
    if not faults:
        faults = _indivisible(shape, split)
    if faults:
        raise Invalid(*faults)


def _indivisible(shape: Shape, split: Split) -> list[Fault]:
    faults = []
    if shape.heads and shape.heads % split.tensor:
        fits = ", ".join(str(n) for n in range(1, min(shape.heads, 64) + 1) if shape.heads % n == 0)
        why = f"{shape.heads} attention heads cannot be divided by {split.tensor} ranks"
        faults.append(Fault(message=why, field="--tp", hint=f"possible: {fits}"))
    heads = {layer.kv_heads for layer in shape.layers if layer.kv_heads}
    odd = [n for n in heads if n % split.tensor and split.tensor % n]
    if odd and not faults:
        why = f"{odd[0]} key-value heads can be neither divided by {split.tensor} ranks nor copied evenly to them"
        faults.append(Fault(message=why, field="--tp"))
    if split.pipeline > len(shape.layers):
        why = f"{len(shape.layers)} layers cannot be divided into {split.pipeline} stages"
        faults.append(Fault(message=why, field="--pp"))
    if split.expert and not shape.experts:
        faults.append(Fault(message="the model has no experts to spread", field="--ep"))
    return faults


def rank(parts: Parts, shape: Shape, split: Split) -> RankWeights:
    """Bytes by role on the rank of the pipeline stage that has most."""
    stages = stage_layers(len(shape.layers), split.pipeline)
    loaded = [_stage(parts, shape, split, stage=i, layers=layers) for i, layers in enumerate(stages)]
    return max(loaded, key=lambda weights: weights.total_bytes)


def stage_layers(count: int, stages: int) -> list[range]:
    """Which layers each pipeline stage has. What is left over goes to the stages before the last, as vLLM does it."""
    sizes = [count // stages] * stages
    for i in range(count % stages):
        sizes[-2 - i if stages > 1 else 0] += 1
    ends = [sum(sizes[: i + 1]) for i in range(stages)]
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def _stage(parts: Parts, shape: Shape, split: Split, *, stage: int, layers: range) -> RankWeights:
    last = stage == split.pipeline - 1
    held = [part for part in parts.parts if _is_here(part, split, layers=layers, first=stage == 0, last=last)]
    if shape.tied and any(part.role is Role.EMBEDDING for part in held):
        held = [part for part in held if part.role is not Role.HEAD]  # stored twice by some, kept once by all
    by_role = _sum((part.role, _loaded(part, split) * share(part.role, shape, split)) for part in held)
    if shape.tied and last and split.pipeline > 1:
        by_role[Role.HEAD] = sum(
            _loaded(part, split) / split.tensor for part in parts.parts if part.role is Role.EMBEDDING
        )
    absorbed = sum(_values(part) for part in held if part.role is Role.LATENT_UP) * _ABSORBED / split.tensor
    added = {"rotary table": rotary_bytes(shape, split.element_bytes), "absorbed projections": absorbed}
    return RankWeights(by_role=by_role, added={name: size for name, size in added.items() if size}, stage=stage)


def _is_here(part: Part, split: Split, *, layers: range, first: bool, last: bool) -> bool:
    if part.role is Role.DRAFT:
        return split.draft and last
    if part.role in (Role.EMBEDDING, Role.VISION):
        return first
    if part.role is Role.HEAD:
        return last
    return part.layer in layers or part.layer < 0


def share(role: Role, shape: Shape, split: Split) -> float:
    """The part of a role's bytes that one rank of a stage keeps."""
    one = 1 / split.tensor
    if role in _WHOLE or (role is Role.VISION and split.replicate_vision):
        return 1.0
    if role is Role.EXPERTS:
        return one / split.data
    heads = max((layer.kv_heads for layer in shape.layers), default=0)
    if role is Role.KEYS_VALUES and heads:
        return max(one, 1 / heads)
    if role is Role.FUSED and heads:
        all_heads = shape.heads + 2 * heads
        return (shape.heads * one + 2 * heads * max(one, 1 / heads)) / all_heads
    return one


def rotary_bytes(shape: Shape, element_bytes: int) -> float:
    """The table of sines and cosines that an engine makes for the whole context: 2.5 GiB for ten million tokens."""
    rotated = [layer.rope_dim or layer.head_dim for layer in shape.layers if layer.attends not in _WITHOUT_ROTARY]
    return float(shape.context_tokens * max(rotated, default=0) * element_bytes)


_WITHOUT_ROTARY: Final = (Attends.NONE, Attends.STATE, Attends.LINEAR)


def _loaded(part: Part, split: Split) -> float:
    """Bytes of a part after loading: another dtype, or quantised while it is read."""
    width = _FLOATS.get(part.dtype)
    if width is None:
        return part.size_bytes
    if split.quantize_to_bytes and part.role in _LINEAR:
        return part.size_bytes / width * split.quantize_to_bytes
    return part.size_bytes / width * split.element_bytes if part.role is not Role.ROUTER else part.size_bytes


def _values(part: Part) -> float:
    return part.size_bytes / _FLOATS.get(part.dtype, 1)


def _sum(pairs: Iterable[tuple[Role, float]]) -> dict[Role, float]:
    found: dict[Role, float] = {}
    for key, size in pairs:
        found[key] = found.get(key, 0) + size
    return found
