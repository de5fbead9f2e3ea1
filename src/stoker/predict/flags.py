"""How is an engine told what was planned? Its own flags, as its command line has them."""

from stoker.predict.fits import Plan


def flags(plan: Plan, *, long_run: bool = True) -> tuple[str, ...]:
    """The flags of a plan; with the setting that holds for weeks where there is one."""
    build = {"vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt, "llama.cpp": _llama}[plan.ask.engine]
    return tuple(f"{name}={value}" if value else name for name, value in build(plan, long_run=long_run).items())


def _share(plan: Plan, *, long_run: bool) -> str:
    held = plan.long_run.utilization if long_run and plan.long_run else plan.load.utilization
    return f"{held:.2f}"


def _vllm(plan: Plan, *, long_run: bool) -> dict[str, str]:
    ask, split = plan.ask, plan.ask.split
    sequences = plan.long_run.sequences if long_run and plan.long_run else plan.load.sequences
    found = {
        "--max-model-len": str(ask.context_tokens),
        "--gpu-memory-utilization": _share(plan, long_run=long_run),
        "--max-num-seqs": str(sequences),
        "--max-num-batched-tokens": str(plan.load.batch_tokens),
    }
    for name, size in (("tensor", split.tensor), ("pipeline", split.pipeline), ("data", split.data)):
        if size > 1:
            found[f"--{name}-parallel-size"] = str(size)
    found |= {"--enable-expert-parallel": ""} if split.expert else {}
    found |= {"--quantization": "fp8"} if split.quantize_to_bytes == 1 else {}
    return found | ({"--kv-cache-dtype": "fp8"} if ask.kv_element_bytes == 1 else {})


def _sglang(plan: Plan, *, long_run: bool) -> dict[str, str]:
    ask, split = plan.ask, plan.ask.split
    found = {
        "--context-length": str(ask.context_tokens),
        "--mem-fraction-static": _share(plan, long_run=long_run),
        "--max-running-requests": str(plan.load.sequences),
    }
    for name, size in (("--tp-size", split.tensor), ("--pp-size", split.pipeline), ("--dp-size", split.data)):
        if size > 1:
            found[name] = str(size)
    found |= {"--ep-size": str(split.tensor)} if split.expert else {}
    found |= {"--quantization": "fp8"} if split.quantize_to_bytes == 1 else {}
    return found | ({"--kv-cache-dtype": "fp8_e4m3"} if ask.kv_element_bytes == 1 else {})


def _tensorrt(plan: Plan, *, long_run: bool) -> dict[str, str]:
    split = plan.ask.split
    found = {
        "--kv_cache_free_gpu_memory_fraction": _share(plan, long_run=long_run),
        "--max_batch_size": str(plan.load.sequences),
        "--max_num_tokens": str(plan.load.batch_tokens),
    }
    for name, size in (("--tp_size", split.tensor), ("--pp_size", split.pipeline)):
        if size > 1:
            found[name] = str(size)
    return found | ({"--ep_size": str(split.tensor)} if split.expert else {})


def _llama(plan: Plan, *, long_run: bool) -> dict[str, str]:  # noqa: ARG001 - one shape for all engines
    slots = max(1, plan.ask.sessions)
    found = {"--ctx-size": str(plan.ask.context_tokens * slots), "--parallel": str(slots)}
    if plan.ask.kv_element_bytes == 1:
        found |= {"--cache-type-k": "q8_0", "--cache-type-v": "q8_0"}
    return found
