"""Does a model fit on these cards, for how many sessions, and what breaks first?

A start that fits is not a service that runs: memory fragments, graph pools grow, contexts grow. The long-run setting
keeps a reserve for each of these and says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.predict import kv, overhead, roles
from stoker.predict.coefficients import GIB, Coefficients, Memory, learned, memory
from stoker.predict.gpu import Gpu
from stoker.predict.kv import Cut, Pool
from stoker.predict.overhead import Budget, Load, Term
from stoker.predict.roles import Parts, RankWeights, Split
from stoker.predict.shape import Attends, Layer, Shape

_LEAST: Final = 0.01  # shares of a card are set in hundredths
_FP8: Final = ("fp8", "float8", "f8_e4m3")
_FP4: Final = ("fp4", "nvfp4", "mxfp4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is asked. ``context_tokens`` 0: the model's own limit."""

    parts: Parts
    shape: Shape
    gpu: Gpu
    split: Split = field(default_factory=Split)
    load: Load = field(default_factory=Load)
    engine: str = "vllm"
    version: str = ""
    kv_element_bytes: float = 2.0
    context_tokens: int = 0
    sessions: int = 0  # wanted at once; 0: as many as fit
    speculative_tokens: int = 0
    quantization: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """A setting that holds for weeks. ``reserves`` say what is kept free, and why."""

    utilization: float
    sequences: int
    sessions: int
    reserves: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer for one configuration. ``sessions``: at once at the context, over all data-parallel ranks."""

    ask: Ask
    load: Load
    row: Memory
    weights: RankWeights
    budget: Budget
    pool: Pool | None  # None: it does not start
    token_bytes: float
    sessions: int
    sessions_low: int
    sessions_high: int
    breaks_first: str
    long_run: LongRun | None
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it starts and holds what was wanted."""
        return self.pool is not None and self.sessions >= max(1, self.ask.sessions)


def plan(ask: Ask, table: Coefficients) -> Plan:
    """Plan one configuration; raises Invalid for what no engine could run."""
    ask = _whole(ask)
    row = _row(ask, table)
    load = overhead.defaults(table, ask.gpu, ask.load, row)
    weights = roles.rank(ask.parts, ask.shape, ask.split)
    budget = _budget(ask, weights, load, row)
    cache = budget.cache
    held = [
        _pool(ask, load, size) for size in (cache.size_bytes, cache.low_bytes, cache.high_bytes) if size is not None
    ]
    counts = [_sessions(ask, load, pool) if pool else 0 for pool in held]
    missing = budget.missing_bytes > 0
    pool = None if missing else held[0]
    sessions = counts[0] if pool else 0
    return Plan(
        ask=ask,
        load=load,
        row=row,
        weights=weights,
        budget=budget,
        pool=pool,
        token_bytes=kv.bytes_per_token(_stage(ask), _cut(ask, load)),
        sessions=sessions,
        sessions_low=0 if missing else min(counts),
        sessions_high=max(counts),
        breaks_first=_breaks(ask, load, budget, sessions),
        long_run=_long_run(ask, table, load, row, budget=budget) if pool and ask.engine == "vllm" else None,
        notes=_notes(ask, weights),
    )


def choose(ask: Ask, table: Coefficients) -> Sequence[Plan]:
    """The checkpoint as it is and, where the card computes in FP8 and weights are wide, in FP8; the best first."""
    plans = [plan(ask, table)]
    wide = any(dtype in ("BF16", "F16", "F32") for dtype in ask.parts.by_dtype())
    if wide and not ask.quantization and not ask.split.quantize_to_bytes and "fp8" in ask.gpu.native:
        plans.append(plan(replace(ask, split=replace(ask.split, quantize_to_bytes=1.0)), table))
    # Full precision is preferred as long as it holds what was wanted; then what holds most.
    return sorted(plans, key=lambda p: (not p.fits, p.ask.split.quantize_to_bytes if p.fits else -p.sessions))


def pool(plan: Plan, tokens: int) -> Pool | None:
    """What the cache holds for requests of another length, at the setting that holds for weeks where there is one."""
    size = plan.budget.cache.size_bytes
    if plan.long_run is not None:
        size -= (plan.load.utilization - plan.long_run.utilization) * plan.budget.card_bytes
    return _pool(replace(plan.ask, context_tokens=tokens), plan.load, size) if plan.pool is not None else None


def holds(plan: Plan, cache_bytes: float) -> Pool | None:
    """What a cache of a given size holds, whatever the share would leave."""
    return _pool(plan.ask, plan.load, cache_bytes)


def difference(before: Plan, after: Plan) -> tuple[Term, ...]:
    """How much more stays free outside the engine's share with the second setting, term by term."""
    card = before.budget.card_bytes
    share = (before.load.utilization - after.load.utilization) * card
    terms = [Term(name="utilization", size_bytes=share, source="share of the card that the engine leaves")]
    if not before.row.graphs_counted:
        old, new = before.budget.term("graphs"), after.budget.term("graphs")
        kept = min(1.0, after.load.sequences / max(1, before.load.sequences))
        most = (old.high_bytes or 0.0) - (new.low_bytes or 0.0) * kept
        saved = old.size_bytes - new.size_bytes * kept
        why = "fewer batch sizes are captured for fewer sequences; graphs lie outside the share before 0.21"
        terms.append(Term(name="graphs", size_bytes=saved, source=why, low_bytes=0.0, high_bytes=most))
    return tuple(terms)


def _whole(ask: Ask) -> Ask:
    """Check what was asked and fill in the context."""
    roles.check(ask.shape, ask.split)
    limit, context = ask.shape.context_tokens, ask.context_tokens or ask.shape.context_tokens
    if limit and context > limit:
        why = f"{context} tokens are more than the model's limit of {limit}"
        raise Invalid(Fault(message=why, field="--context", hint=f"at most {limit}"))
    if context < 1:
        raise Invalid(Fault(message="the model does not say its context limit", field="--context", hint="give one"))
    if not 0 <= ask.load.utilization <= 1:
        raise Invalid(Fault(message=f"{ask.load.utilization} is no share of a card", field="--utilization"))
    if min(ask.load.batch_tokens, ask.load.sequences, ask.sessions) < 0:
        raise Invalid(Fault(message="a count cannot be negative"))
    return replace(ask, context_tokens=context)


def _row(ask: Ask, table: Coefficients) -> Memory:
    """The engine's coefficients, with what own starts on this card have taught."""
    row = memory(table, ask.engine, ask.version)
    found = learned(table, ask.engine, ask.version, ask.gpu.name)
    if found is None:
        return row
    spread = found.spread or row.residual
    return msgspec.structs.replace(row, learned_gib=found.extra_gib, learned_cases=found.cases, residual=spread)


def _budget(ask: Ask, weights: RankWeights, load: Load, row: Memory) -> Budget:
    if ask.engine == "sglang":
        return overhead.sglang(ask.gpu, weights, load=load, row=row)
    if ask.engine == "tensorrt-llm":
        return overhead.tensorrt_llm(ask.gpu, weights, ask.shape, split=ask.split, load=load, row=row)
    if ask.engine == "llama.cpp":
        each = kv.bytes_per_session(_stage(ask), _cut(ask, load), ask.context_tokens)
        size = each * max(1, ask.sessions)
        return overhead.llama_cpp(ask.gpu, weights, ask.shape, cache_bytes=size, row=row)
    return overhead.vllm(ask.gpu, weights, ask.shape, split=ask.split, load=load, row=row)


def _stage(ask: Ask) -> Shape:
    """The layers whose cache lies on one rank: a stage's, and the draft heads when they run."""
    stages = [tuple(ask.shape.layers[i] for i in layers) for layers in _ranges(ask)]
    layers = max(stages, key=lambda stage: sum(kv.token_bytes(layer, Cut()) for layer in stage))
    if ask.split.draft and ask.shape.draft_layers:
        layers += (_like_drafts(ask.shape.layers),) * ask.shape.draft_layers
    return replace(ask.shape, layers=layers)


def _ranges(ask: Ask) -> Sequence[range]:
    return roles.stage_layers(len(ask.shape.layers), ask.split.pipeline)


def _like_drafts(layers: Sequence[Layer]) -> Layer:
    """A draft head attends as the model's last layer that keeps something per token."""
    stateless = (Attends.LINEAR, Attends.STATE, Attends.NONE)
    return next((layer for layer in reversed(layers) if layer.attends not in stateless), layers[-1])


def _cut(ask: Ask, load: Load) -> Cut:
    return Cut(
        ranks=ask.split.tensor,
        element_bytes=ask.kv_element_bytes,
        block_tokens=1 if ask.engine == "sglang" else 16,
        speculative_tokens=ask.speculative_tokens,
        batch_tokens=load.batch_tokens,
    )


def _pool(ask: Ask, load: Load, size: float) -> Pool | None:
    stage, cut = _stage(ask), _cut(ask, load)
    if kv.bytes_per_session(stage, cut, ask.context_tokens) <= 0 or size <= 0:
        return None
    if ask.engine == "llama.cpp":
        slots = max(1, ask.sessions)
        return kv.llama_cpp(context_tokens=ask.context_tokens * slots, slots=slots)
    if ask.engine == "sglang" and kv.bytes_per_token(stage, cut) > 0:
        return kv.sglang(stage, cut, cache_bytes=size, length=ask.context_tokens)
    return kv.vllm(stage, cut, cache_bytes=size, length=ask.context_tokens)


def _sessions(ask: Ask, load: Load, pool: Pool) -> int:
    each = floor(pool.requests)
    return min(each, load.sequences) * ask.split.data


def _breaks(ask: Ask, load: Load, budget: Budget, sessions: int) -> str:
    if budget.missing_bytes > 0:
        largest = max((t for t in budget.terms if t.name != "left free"), key=lambda term: term.size_bytes)
        return f"the start: {budget.missing_bytes / GIB:.1f} GiB are missing, {largest.name} is the largest part"
    if sessions >= load.sequences * ask.split.data:
        return f"the sequence limit: {load.sequences} run at once, others wait"
    if sessions < max(1, ask.sessions):
        return (
            f"the KV cache: {sessions} sessions of {ask.context_tokens} tokens fit, {max(1, ask.sessions)} are wanted"
        )
    return f"the KV cache, with session {sessions + 1} of {ask.context_tokens} tokens: it waits, or one is preempted"


def _long_run(ask: Ask, table: Coefficients, load: Load, row: Memory, *, budget: Budget) -> LongRun:
    """Lower the share until what lies outside covers every reserve."""
    card = budget.card_bytes
    long = table.long_run
    reserves = [
        Term(
            name="what the formulas missed",
            size_bytes=max(0.0, -row.residual.low_gib) * GIB,
            source="95th percentile of the residuals: a start that is larger than predicted",
        ),
        Term(name="fragmentation", size_bytes=long.fragmentation_share * card, source=long.source),
    ]
    if not row.graphs_counted:
        size = overhead.graphs(ask.shape, load, row, ask.split).high_bytes or 0.0
        reserves.insert(
            0, Term(name="graph pools", size_bytes=size, source="outside the share before 0.21, and growing")
        )
    needed = sum(term.size_bytes for term in reserves)
    safe = min(load.utilization, floor((1 - needed / card) / _LEAST) * _LEAST)
    safe_load = replace(load, utilization=round(max(safe, _LEAST), 2))
    weights = roles.rank(ask.parts, ask.shape, ask.split)
    cache = _budget(ask, weights, safe_load, row).cache
    pool = _pool(ask, safe_load, cache.low_bytes or 0.0)
    sessions = _sessions(ask, safe_load, pool) if pool else 0
    return LongRun(
        utilization=safe_load.utilization,
        sequences=max(1, min(load.sequences, sessions // ask.split.data)),
        sessions=sessions,
        reserves=tuple(reserves),
    )


def _notes(ask: Ask, weights: RankWeights) -> tuple[str, ...]:
    """What a reader must know: fall-backs, estimates, parts that were not understood."""
    notes = []
    told = f"{ask.quantization} {' '.join(ask.parts.by_dtype())}".lower()
    native = ask.gpu.native
    for names, kind in ((_FP8, "fp8"), (_FP4, "fp4")):
        if any(name in told for name in names) and kind not in native:
            notes.append(
                f"{ask.gpu.name} does not compute in {kind.upper()}: weights stay {kind.upper()} in memory and are"
                " widened when they are used (weight-only), so memory is saved and arithmetic is not"
            )
    if ask.split.quantize_to_bytes == 1 and "fp8" not in native:
        notes.append(f"{ask.gpu.name} does not compute in FP8: quantisation on load saves memory only")
    if ask.parts.estimated:
        notes.append("weights are reckoned from the config, for want of headers: within a few percent at best")
    if ask.parts.unknown:
        shown = ", ".join(ask.parts.unknown[:5])
        notes.append(f"{len(ask.parts.unknown)} tensors have no known role and are counted whole on each rank: {shown}")
    notes += [f"not understood in the config: {part}" for part in ask.shape.unknown]
    notes += [
        f"the engine makes {name}: {size / GIB:.2f} GiB" for name, size in weights.added.items() if size > GIB / 4
    ]
    if not ask.gpu.measured:
        notes.append(f"the memory of {ask.gpu.name} is reckoned, not measured: give --card if you know it")
    if ask.split.tensor > 1 and not ask.gpu.link_gbs:
        notes.append(f"{ask.gpu.name} has no NVLink: tensor parallelism goes over {ask.gpu.link or 'PCIe'}")
    return tuple(notes)
