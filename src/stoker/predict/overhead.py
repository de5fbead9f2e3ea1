"""Where does the memory of a card go, and what is left for the cache?

vLLM: ``cache = utilization · card - weights - activation - non_torch - graphs (since 0.21)``; before 0.21 graphs
come on top of the share. Activation is what the start-up profile run reaches:

* sampler: ``sequences · vocab · (e + element) + tokens · hidden · element``
* forward, dense: ``tokens · element · (3 · intermediate / TP + c · hidden)``
* the larger of both, and for experts ``tokens · k · (2 · max(2 · width / TP, hidden) + 2 · width / TP)``

SGLang: ``cache = fraction · card - weights``, and what it computes in lies in the rest of the card.
TensorRT-LLM: ``cache = fraction · (card - weights - activation - non_torch)``.
llama.cpp: the cache is as large as the context that was asked for; what is computed in takes a micro-batch's logits.
"""

from dataclasses import dataclass
from typing import Final

from stoker.predict.coefficients import GIB, Coefficients, Memory
from stoker.predict.gpu import Gpu
from stoker.predict.roles import RankWeights, Split
from stoker.predict.shape import Shape

_MICRO_BATCH: Final = 512  # llama.cpp's n_ubatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an engine is told. Zero: its default on the card."""

    utilization: float = 0.0
    batch_tokens: int = 0
    sequences: int = 0
    fused_experts: bool = False  # kernels that keep no workspace (MXFP4)
    eager: bool = False  # no graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One part of a card. ``low`` and ``high``: its band, where it has one."""

    name: str
    size_bytes: float
    source: str
    low_bytes: float | None = None
    high_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One card, all of it: the terms add up to ``card_bytes`` plus what is missing."""

    card_bytes: float
    terms: tuple[Term, ...]
    missing_bytes: float = 0.0  # what a start lacks; above zero it fails
    outside: tuple[Term, ...] = ()  # what comes on top of the engine's share, inside the part that it leaves

    def term(self, name: str) -> Term:
        """One of the terms."""
        return next(term for term in (*self.terms, *self.outside) if term.name == name)

    @property
    def cache(self) -> Term:
        """The KV cache."""
        return self.term("KV cache")


def defaults(table: Coefficients, gpu: Gpu, load: Load, row: Memory) -> Load:
    """Fill in what the engine chooses on this card."""
    card = gpu.total_bytes / GIB
    chosen = next(d for d in table.defaults if card >= d.card_gib and not (d.without and d.without in gpu.name))
    return Load(
        utilization=load.utilization or row.utilization,
        batch_tokens=load.batch_tokens or chosen.batch_tokens,
        sequences=load.sequences or chosen.sequences,
        fused_experts=load.fused_experts,
        eager=load.eager,
    )


def sampler_bytes(shape: Shape, split: Split, load: Load, row: Memory) -> float:
    """What sampling takes at the largest batch."""
    logits = load.sequences * shape.vocab * (row.sampler_bytes + split.element_bytes)
    return logits + load.batch_tokens * shape.hidden * split.element_bytes


def forward_bytes(shape: Shape, split: Split, load: Load, row: Memory) -> float:
    """What a dense layer takes at the largest batch."""
    matrices = 3 if shape.gated else 2
    width = matrices * shape.intermediate / split.tensor + row.forward_hidden * shape.hidden
    return load.batch_tokens * split.element_bytes * width


def workspace_bytes(shape: Shape, split: Split, load: Load) -> float:
    """What a mixture of experts takes at the largest batch."""
    if not shape.experts or load.fused_experts:
        return 0.0
    width = shape.expert_intermediate / split.tensor
    routed = load.batch_tokens * shape.experts_per_token
    return routed * (max(2 * width, shape.hidden) + width) * 2


def non_torch_bytes(split: Split, row: Memory) -> float:
    """What the driver and the collectives take outside the allocator."""
    if split.tensor * split.data > 1:
        return row.non_torch_many_gib * GIB
    return (row.non_torch_stage_gib if split.pipeline > 1 else row.non_torch_gib) * GIB


def graphs(shape: Shape, load: Load, row: Memory, split: Split) -> Term:
    """What captured graphs keep: larger for more layers, and for more batch sizes where there are few sequences."""
    layers = len(shape.layers) / split.pipeline
    size = 0.0 if load.eager else (row.graphs_gib + row.graphs_layer_gib * layers) * GIB
    low, high = (0.0, 0.0) if load.eager else (row.graphs_low_gib * GIB, row.graphs_high_gib * GIB)
    return Term(name="graphs", size_bytes=size, source=row.source, low_bytes=min(low, size), high_bytes=max(high, size))


def vllm(gpu: Gpu, weights: RankWeights, shape: Shape, *, split: Split, load: Load, row: Memory) -> Budget:
    """Divide a card as vLLM does."""
    activation = max(sampler_bytes(shape, split, load, row), forward_bytes(shape, split, load, row))
    which = "sampler" if activation == sampler_bytes(shape, split, load, row) else "forward"
    captured = graphs(shape, load, row, split)
    terms = [
        Term(name="weights", size_bytes=weights.total_bytes, source="headers, by role and rank"),
        Term(name="activation", size_bytes=activation, source=f"{which} at the largest batch; {row.source}"),
        Term(name="expert workspace", size_bytes=workspace_bytes(shape, split, load), source="routed tokens"),
        Term(name="non-torch", size_bytes=non_torch_bytes(split, row), source=row.source),
    ]
    if row.graphs_counted:
        terms.append(captured)
    share = load.utilization * gpu.total_bytes
    budget = _rest(gpu.total_bytes, share, terms, row)
    outside = () if row.graphs_counted else (captured,)
    return Budget(card_bytes=budget.card_bytes, terms=budget.terms, missing_bytes=budget.missing_bytes, outside=outside)


def sglang(gpu: Gpu, weights: RankWeights, *, load: Load, row: Memory) -> Budget:
    """Divide a card as SGLang does: everything that is not weights or cache lies outside its static share."""
    terms = [Term(name="weights", size_bytes=weights.total_bytes, source="headers, by role and rank")]
    return _rest(gpu.total_bytes, load.utilization * gpu.total_bytes, terms, row)


def tensorrt_llm(gpu: Gpu, weights: RankWeights, shape: Shape, *, split: Split, load: Load, row: Memory) -> Budget:
    """Divide a card as TensorRT-LLM does: a share of what is free after loading."""
    activation = forward_bytes(shape, split, load, row)
    terms = [
        Term(name="weights", size_bytes=weights.total_bytes, source="headers, by role and rank"),
        Term(name="activation", size_bytes=activation, source=f"forward at the largest batch; {row.source}"),
        Term(name="non-torch", size_bytes=non_torch_bytes(split, row), source=row.source),
    ]
    used = sum(term.size_bytes for term in terms)
    share = used + load.utilization * max(0.0, gpu.total_bytes - used)
    return _rest(gpu.total_bytes, share, terms, row)


def llama_cpp(gpu: Gpu, weights: RankWeights, shape: Shape, *, cache_bytes: float, row: Memory) -> Budget:
    """Divide a card as llama.cpp does: the whole context is taken at the start."""
    computed = _MICRO_BATCH * (shape.vocab * 4 + (3 * shape.intermediate + 4 * shape.hidden) * 4)
    cache = Term(name="KV cache", size_bytes=cache_bytes, source="the context asked for")
    terms = (
        Term(name="weights", size_bytes=weights.total_bytes, source="headers"),
        Term(name="activation", size_bytes=computed, source=f"logits and one layer of a micro-batch; {row.source}"),
        Term(name="non-torch", size_bytes=row.non_torch_gib * GIB, source=row.source),
        cache,
        *_learned(row),
    )
    used = sum(term.size_bytes for term in terms)
    missing = max(0.0, used - gpu.total_bytes)
    free = Term(name="left free", size_bytes=max(0.0, gpu.total_bytes - used), source="what nothing asked for")
    return Budget(card_bytes=gpu.total_bytes, terms=(*terms, free), missing_bytes=missing)


def _rest(card: float, share: float, terms: list[Term], row: Memory) -> Budget:
    """The cache is what the engine's share leaves; what lies outside the share stays free."""
    terms = [*terms, *_learned(row)]
    left = share - sum(term.size_bytes for term in terms)
    cache = max(0.0, left)
    residual = row.residual
    told = f"{residual.cases} logs" if residual.cases else "stated, not measured"
    band = Term(
        name="KV cache",
        size_bytes=cache,
        source=f"what the share leaves; band from {told}",
        low_bytes=max(0.0, left + residual.low_gib * GIB),
        high_bytes=max(0.0, left + residual.high_gib * GIB),
    )
    free = Term(name="left free", size_bytes=card - share, source="outside the engine's share")
    return Budget(card_bytes=card, terms=(*terms, band, free), missing_bytes=max(0.0, -left))


def _learned(row: Memory) -> tuple[Term, ...]:
    """What own starts took beyond the formulas; below zero where they took less."""
    if not row.learned_cases:
        return ()
    source = f"{row.learned_cases} starts on this card, by stoker plan check"
    return (Term(name="learned here", size_bytes=row.learned_gib * GIB, source=source),)
