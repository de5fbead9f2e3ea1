"""How fast is a planned configuration, how sure is that, and what binds it?"""

from dataclasses import dataclass
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.predict import estimate
from stoker.predict.coefficients import Speed
from stoker.predict.fits import Plan
from stoker.predict.roles import Role
from stoker.predict.shape import Shape
from stoker.predict.timing import roofline
from stoker.predict.timing.roofline import Work
from stoker.predict.timing.rows import Served, work
from stoker.predict.timing.steps import Steps

_ENGINES: Final = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
_WIDTHS: Final = ((0.6, "nvfp4"), (1.3, "fp8"), (9.0, "bf16"))  # bytes of a weight up to which it is of this kind
_MOST: Final = 4096  # the largest batch at which a flip is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Seconds at one load, each with its band, and why they may be far off."""

    tpot: float
    tpot_low: float
    tpot_high: float
    ttft: float
    ttft_low: float
    ttft_high: float
    output_tokens_per_second: float
    bound_by: str
    flips_at: int  # batch at which another thing binds; 0: not up to the largest looked at
    context_flips_at: int  # context at which another thing binds decode; 0: none up to the model's limit
    prefill_bound_by: str
    prefill_flips_at: int  # prompt at which another thing binds prefill; 0: as above
    extrapolated: tuple[str, ...]


def speeds(plan: Plan, table: Speed, *, prompt: int, output: int, batch: int) -> Speeds | None:
    """Predict a closed loop of ``batch`` requests on one data-parallel rank; None for an engine without rows."""
    if prompt + output > plan.ask.context_tokens:
        why = f"{prompt} tokens in and {output} out are more than the context of {plan.ask.context_tokens}"
        raise Invalid(Fault(message=why, field="--load", hint="ask for a longer --context"))
    engine = _ENGINES.get(plan.ask.engine)
    if engine is None or min(prompt, output, batch) < 1 or not plan.ask.gpu.bandwidth_gbs:
        return None
    lanes = plan.ask.split.pipeline
    sizes = [max(1.0, size / lanes) for size in _batches(batch)]
    rows = work([_served(plan, engine, prompt=prompt, output=output, batch=size) for size in sizes])
    found = roofline.times(rows, table.coefficients)
    told = outside(plan, table, prompt=prompt, batch=batch)
    tpot, ttft = float(found.tpot[0]), float(found.ttft[0])
    floor = _floor(rows)
    bound = [_binds(found, i) for i in range(len(sizes))]
    flips = next((size for size, name in zip(_batches(batch)[1:], bound[1:], strict=True) if name != bound[0]), 0)
    return Speeds(
        tpot=tpot,
        tpot_low=min(tpot, floor) if told else tpot * table.tpot_low,
        tpot_high=tpot * (max(3.0, table.tpot_high) if told else table.tpot_high),
        ttft=ttft,
        ttft_low=min(ttft, _prefill_floor(rows)) if told else ttft * table.ttft_low,
        ttft_high=ttft * (max(3.0, table.ttft_high) if told else table.ttft_high),
        output_tokens_per_second=plan.ask.split.data * batch * output / (ttft + tpot * (output - 1)),
        bound_by=bound[0],
        flips_at=flips,
        context_flips_at=_context_flip(plan, engine, table, batch=sizes[0], prompt=prompt),
        prefill_bound_by=_prefill_bounds(plan, engine, table, [prompt])[0],
        prefill_flips_at=_prefill_flip(plan, engine, table, prompt),
        extrapolated=told,
    )


def has_rows(engine: str) -> bool:
    """Whether an engine's times were measured."""
    return engine in _ENGINES


def steps(plan: Plan, table: Speed, *, prompt: int, output: int) -> Steps | None:
    """The times of single steps around these lengths; None for an engine without rows."""
    engine = _ENGINES.get(plan.ask.engine)
    if engine is None or not plan.ask.gpu.bandwidth_gbs:
        return None
    row = work([_served(plan, engine, prompt=prompt, output=output, batch=1)])
    return Steps(row, table.coefficients, table.simulation)


def _batches(batch: int) -> list[int]:
    sizes = [batch]
    while sizes[-1] < _MOST:
        sizes.append(sizes[-1] * 2)
    return sizes


def _served(plan: Plan, engine: str, *, prompt: int, output: int, batch: float) -> Served:
    split, shape = plan.ask.split, plan.ask.shape
    dense, sparse = _precisions(plan)
    return Served(
        shape=shape,
        gpu=plan.ask.gpu,
        engine=engine,
        dense=dense,
        sparse=sparse,
        ranks=split.tensor,  # stages save no time: they work on other batches, see ``speeds``
        expert_ranks=split.tensor * (split.data if shape.experts else 1),
        spread=split.expert,
        prompt=float(prompt),
        output=float(output),
        batch=batch,
        kv_element_bytes=plan.ask.kv_element_bytes,
    )


def _precisions(plan: Plan) -> tuple[str, str]:
    """The precision of dense layers and of experts, by the bytes of a weight that the headers give."""
    narrow = plan.ask.split.quantize_to_bytes
    true, plain = plan.ask.parts.by_role(), estimate.parts(plan.ask.shape, element_bytes=1.0).by_role()

    def kind(*roles: Role) -> str:
        values = sum(plain.get(role, 0) for role in roles)
        width = narrow or sum(true.get(role, 0) for role in roles) / max(1, values)
        return next(name for most, name in _WIDTHS if width <= most or name == "bf16")

    dense = kind(Role.DENSE, Role.SHARED) if true.get(Role.DENSE) or true.get(Role.SHARED) else kind(Role.ATTENTION)
    return dense, kind(Role.EXPERTS) if plan.ask.shape.experts else dense


def _lengths(plan: Plan, prompt: int) -> list[int]:
    """This prompt and its doublings, up to the context."""
    found = [prompt]
    while found[-1] * 2 <= plan.ask.context_tokens:
        found.append(found[-1] * 2)
    return found


def _context_flip(plan: Plan, engine: str, table: Speed, *, batch: float, prompt: int) -> int:
    lengths = _lengths(plan, prompt)
    rows = work([_served(plan, engine, prompt=each, output=1, batch=batch) for each in lengths])
    found = roofline.times(rows, table.coefficients)
    bound = [_binds(found, i) for i in range(len(lengths))]
    return next((length for length, name in zip(lengths, bound, strict=True) if name != bound[0]), 0)


def _prefill_flip(plan: Plan, engine: str, table: Speed, prompt: int) -> int:
    lengths = _lengths(plan, prompt)
    bound = _prefill_bounds(plan, engine, table, lengths)
    return next((length for length, name in zip(lengths, bound, strict=True) if name != bound[0]), 0)


def _prefill_bounds(plan: Plan, engine: str, table: Speed, prompts: list[int]) -> list[str]:
    """What takes most of the prefill of prompts of these lengths."""
    rows = work([_served(plan, engine, prompt=each, output=1, batch=1) for each in prompts])
    names = ("weight reads", "compute", "attention", "launches and collectives")
    parts = roofline.prefill_parts(rows, table.coefficients)
    return [max(zip(names, parts, strict=True), key=lambda part: float(part[1][i]))[0] for i in range(len(prompts))]


def _floor(rows: Work) -> float:
    """What physics allows at best: every byte once at full bandwidth."""
    context = rows.prompt[0] + rows.output[0] / 2
    touched = 1 - (1 - rows.chosen[0] / rows.experts[0]) ** rows.batch[0]
    read = rows.dense_bytes[0] + rows.expert_bytes[0] * touched + rows.batch[0] * context * rows.cache_bytes[0]
    return float(read / rows.bandwidth[0])


def _prefill_floor(rows: Work) -> float:
    """What physics allows a prompt at best: its arithmetic at the full peak."""
    each = rows.dense_flops[0] / rows.dense_peak[0] + rows.expert_flops[0] / rows.expert_peak[0]
    return float(rows.prompt[0] * each)


def _binds(found: roofline.Times, i: int) -> str:
    parts = {
        "weight reads": float(found.memory[i]),
        "compute": float(found.compute[i]),
        "cache reads": float(found.cache[i]),
        "launches and collectives": float(found.rest[i]),
    }
    return max(parts, key=lambda name: parts[name])


def outside(plan: Plan, table: Speed, *, prompt: int, batch: int) -> tuple[str, ...]:
    """What lies outside the measured rows, in words."""
    ask, split = plan.ask, plan.ask.split
    cases = (
        (not ask.gpu.link_gbs and split.tensor > 1, "ranks are joined by PCIe"),
        (split.pipeline > 1, "pipeline stages"),
        (split.data > 1 and bool(ask.shape.experts), "attention data parallelism"),
        (split.draft, "speculation"),
        (not table.prompt_low <= prompt <= table.prompt_high, f"a prompt of {prompt} tokens"),
        (batch > table.batch_high, f"a batch of {batch}"),
        (split.tensor > table.ranks_high, f"{split.tensor} ranks"),
        ("fp8" not in ask.gpu.native or ask.gpu.bandwidth_gbs < 3000, f"a card like {ask.gpu.name}"),
        (_mixed(ask.shape), "layers of a kind that no row has"),
    )
    return tuple(words for holds, words in cases if holds)


def _mixed(shape: Shape) -> bool:
    return any(layer.attends.value in ("state", "sparse", "chunked") for layer in shape.layers)
