"""A rig out of a plan: what the planner says of a model on cards, as an engine that can be asked."""

from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.predict.coefficients import Speed
from stoker.predict.fits import Plan
from stoker.predict.timing import speed
from stoker.rehearse.batch.rig import Cards, Names, Phases, Rig

_TYPICAL: Final = (1024, 256)  # tokens in and out around which steps are reckoned
_READ_BYTES_PER_SECOND: Final = 2e9  # of weights from a local disk
_FETCH_BYTES_PER_SECOND: Final = 2.5e8  # from a hub
_COMPILE_SECONDS: Final = {"vllm": 45.0}
_GRAPHS_SECONDS: Final = 20.0


def rig(plan: Plan, table: Speed, *, names: Names, fetched: bool) -> Rig:
    """Make the rig of one replica; ``fetched``: its weights are on the disk. Raises Invalid where it does not start."""
    ask, pool = plan.ask, plan.pool
    prompt = min(_TYPICAL[0], max(1, ask.context_tokens // 2))
    steps = speed.steps(plan, table, prompt=prompt, output=min(_TYPICAL[1], prompt))
    if steps is None:
        hint = "vllm, sglang or tensorrt-llm on a card of the catalogue, or --rig with step times of your own"
        raise Invalid(Fault(message=f"no step times are known for {ask.engine} on {ask.gpu.name}", hint=hint))
    if pool is None:
        raise Invalid(Fault(message=f"it does not start there: {plan.breaks_first}", field="--gpu"))
    weights = plan.weights.total_bytes
    peak = max(ask.gpu.fp8_tflops if "fp8" in ask.gpu.native else 0.0, ask.gpu.bf16_tflops) * 1e12
    every = weights * ask.split.ranks
    return Rig(
        source=f"{ask.engine} {ask.version or 'newest'} on {ask.split.ranks} x {ask.gpu.name}, as planned",
        names=names,
        version=ask.version or "0.19.0",
        kv_cache_tokens=pool.logged_tokens,
        block_tokens=max(1, pool.block_tokens),
        batch_tokens=plan.load.batch_tokens,
        sequences=plan.load.sequences,
        context_tokens=ask.context_tokens,
        planned=steps.told(),
        phases=Phases(
            download_seconds=0.0 if fetched else round(every / _FETCH_BYTES_PER_SECOND, 1),
            load_seconds=round(every / _READ_BYTES_PER_SECOND, 1),
            compile_seconds=_COMPILE_SECONDS.get(ask.engine, 0.0),
            graphs_seconds=_GRAPHS_SECONDS,
        ),
        cards=Cards(
            count=ask.split.ranks,
            name=f"NVIDIA {ask.gpu.name}",
            memory_bytes=float(ask.gpu.total_bytes),
            weights_bytes=weights,
            cache_bytes=plan.budget.cache.size_bytes,
            bandwidth_bytes_per_second=ask.gpu.bandwidth_gbs * 1e9,
            flops_per_second=peak,
            token_flops=steps.token_seconds * peak,
        ),
    )
