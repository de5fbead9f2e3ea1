"""What does the engine say of itself to Prometheus? Under vLLM's names of today, its older ones, or SGLang's."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from stoker.base.json import JsonObject
from stoker.predict.batching.machine import Machine
from stoker.rehearse.batch.clockwork import Clockwork
from stoker.rehearse.batch.histogram import Histogram
from stoker.rehearse.batch.rig import Rig

_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
_OLD: Final = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_queries_total": "vllm:gpu_prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total": "vllm:gpu_prefix_cache_hits_total",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}
_NEW: Final = (  # what the older pages have under no name at all
    "vllm:num_requests_waiting_by_reason",
    "vllm:prompt_tokens_cached_total",
    "vllm:request_time_per_output_token_seconds",
    "vllm:admission_rejections_total",
)


class _Row(NamedTuple):
    """One family of samples; ``label``: what each value is beside the model's own labels."""

    kind: str
    name: str
    values: Mapping[str, float]


def page(clockwork: Clockwork, rig: Rig, *, model: str, finished: Mapping[str, int]) -> str:
    """Write the page; ``finished``: answers by their reason."""
    sglang, old = rig.names == "sglang", rig.names == "vllm-old"
    label = f'engine_type="unified",model_name="{model}",tp_rank="0"' if sglang else f'engine="0",model_name="{model}"'
    rows = _sglang(clockwork, rig, finished) if sglang else _vllm(clockwork, finished)
    shown = [row for row in (*rows, *(_gone() if old else ())) if not (old and row.name in _NEW)]
    lines = [line for row in shown for line in _lines(row, _named(row.name, old=old), label)]
    for name, histogram in _histograms(clockwork, sglang=sglang):
        if not (old and name in _NEW):
            lines += _histogram(_named(name, old=old), histogram, label)
    if not sglang:
        lines += _cache_config(rig, old=old)
    return "\n".join(lines) + "\n"


def _vllm(clockwork: Clockwork, finished: Mapping[str, int]) -> Iterator[_Row]:
    machine, gauges = clockwork.machine, clockwork.machine.gauges
    waiting, cached = float(machine.waiting), float(gauges.hit_tokens)
    yield _one("gauge", "vllm:num_requests_running", machine.running)
    yield _one("gauge", "vllm:num_requests_waiting", waiting)
    yield _Row(
        "gauge",
        "vllm:num_requests_waiting_by_reason",
        {'reason="capacity"': waiting, 'reason="deferred"': 0.0},
    )
    yield _one("gauge", "vllm:kv_cache_usage_perc", used(machine))
    yield _one("counter", "vllm:prefix_cache_queries_total", gauges.prompt_tokens)
    yield _one("counter", "vllm:prefix_cache_hits_total", cached)
    yield _one("counter", "vllm:num_preemptions_total", gauges.preemptions)
    yield _one("counter", "vllm:prompt_tokens_total", gauges.prompt_tokens)
    yield _one("counter", "vllm:prompt_tokens_cached_total", cached)
    yield _one("counter", "vllm:generation_tokens_total", clockwork.generated_tokens)
    told = {"tool_calls": "stop"}  # a call is a stop for vLLM
    counts = dict.fromkeys(_REASONS, 0.0)
    for reason, count in finished.items():
        known = told.get(reason, reason)
        counts[known] = counts.get(known, 0.0) + count
    yield _Row(
        "counter",
        "vllm:request_success_total",
        {f'finished_reason="{reason}"': count for reason, count in counts.items()},
    )
    refused = {'reason="max_num_queued_reqs"': float(clockwork.turned_away), 'reason="max_num_queued_tokens"': 0.0}
    yield _Row("counter", "vllm:admission_rejections_total", refused)


def _gone() -> Iterator[_Row]:
    """Names that went with the first engine."""
    yield _one("gauge", "vllm:num_requests_swapped", 0)
    yield _one("gauge", "vllm:cpu_cache_usage_perc", 0)


def _sglang(clockwork: Clockwork, rig: Rig, finished: Mapping[str, int]) -> Iterator[_Row]:
    machine, gauges, cache = clockwork.machine, clockwork.machine.gauges, clockwork.machine.blocks
    yield _one("gauge", "sglang:num_running_reqs", machine.running)
    yield _one("gauge", "sglang:num_queue_reqs", machine.waiting)
    yield _one("gauge", "sglang:num_used_tokens", round(used(machine) * rig.kv_cache_tokens))
    yield _one("gauge", "sglang:kv_used_tokens", round(used(machine) * rig.kv_cache_tokens))
    yield _one("gauge", "sglang:kv_available_tokens", cache.free * rig.block_tokens)
    yield _one("gauge", "sglang:kv_evictable_tokens", cache.kept * rig.block_tokens)
    yield _one("gauge", "sglang:token_usage", used(machine))
    yield _one("gauge", "sglang:max_total_num_tokens", rig.kv_cache_tokens)
    yield _one("gauge", "sglang:cache_hit_rate", gauges.hit_tokens / (gauges.prompt_tokens or 1))
    yield _one("counter", "sglang:num_retracted_requests_total", gauges.preemptions)
    yield _Row("counter", "sglang:cached_tokens_total", {'cache_source="device"': float(gauges.hit_tokens)})
    yield _one("counter", "sglang:evicted_tokens_total", cache.evicted * rig.block_tokens)
    yield _one("counter", "sglang:prompt_tokens_total", gauges.prompt_tokens)
    yield _one("counter", "sglang:generation_tokens_total", clockwork.generated_tokens)
    yield _one("counter", "sglang:num_requests_total", sum(finished.values()))
    yield _one("counter", "sglang:num_aborted_requests_total", finished.get("abort", 0))


def _histograms(clockwork: Clockwork, *, sglang: bool) -> Iterator[tuple[str, Histogram]]:
    seen, prefix = clockwork.seen, "sglang" if sglang else "vllm"
    yield f"{prefix}:time_to_first_token_seconds", seen.first
    yield f"{prefix}:inter_token_latency_seconds", seen.between
    yield f"{prefix}:request_time_per_output_token_seconds", seen.output
    yield f"{prefix}:e2e_request_latency_seconds", seen.whole
    yield "sglang:queue_time_seconds" if sglang else "vllm:request_queue_time_seconds", seen.queue
    if not sglang:
        yield "vllm:request_inference_time_seconds", seen.inference
        yield "vllm:request_prefill_time_seconds", seen.prefill
        yield "vllm:request_decode_time_seconds", seen.decode
        yield "vllm:request_prompt_tokens", seen.prompt
        yield "vllm:request_generation_tokens", seen.generated


def server_info(rig: Rig) -> JsonObject:
    """Tell what SGLang tells of its own settings."""
    return {
        "version": rig.version,
        "context_length": rig.context_tokens,
        "max_running_requests": rig.sequences,
        "max_total_num_tokens": rig.kv_cache_tokens,
        "chunked_prefill_size": rig.batch_tokens,
        "page_size": rig.block_tokens,
        "disable_radix_cache": not rig.prefix_cache,
    }


def used(machine: Machine) -> float:
    """Give the share of the cache that running requests hold."""
    blocks = machine.blocks
    return (blocks.total - blocks.available) / blocks.total


def _one(kind: str, name: str, value: float) -> _Row:
    return _Row(kind, name, {"": float(value)})


def _named(name: str, *, old: bool) -> str:
    return _OLD.get(name, name) if old else name


def _lines(row: _Row, name: str, label: str) -> Iterator[str]:
    yield f"# TYPE {name} {row.kind}"
    for more, value in row.values.items():
        yield f"{name}{{{label}{',' if more else ''}{more}}} {value}"


def _histogram(name: str, seen: Histogram, label: str) -> Sequence[str]:
    return [
        f"# TYPE {name} histogram",
        *(
            f'{name}_bucket{{{label},le="{bound}"}} {float(count)}'
            for bound, count in zip(seen.bounds, seen.upto, strict=True)
        ),
        f'{name}_bucket{{{label},le="+Inf"}} {float(seen.count)}',
        f"{name}_count{{{label}}} {float(seen.count)}",
        f"{name}_sum{{{label}}} {seen.total}",
    ]


def _cache_config(rig: Rig, *, old: bool) -> Sequence[str]:
    """Write the labels by which vLLM tells what its cache holds."""
    told = {
        "block_size": rig.block_tokens,
        "cache_dtype": "auto",
        "enable_prefix_caching": rig.prefix_cache,
        "engine": "0",
        "num_gpu_blocks": rig.limits.blocks,
    }
    if not old:
        most = rig.kv_cache_tokens / rig.context_tokens if rig.context_tokens else 0.0
        told |= {"kv_cache_size_tokens": rig.kv_cache_tokens, "kv_cache_max_concurrency": most}
    labels = ",".join(f'{name}="{value}"' for name, value in told.items())
    return ("# TYPE vllm:cache_config_info gauge", f"vllm:cache_config_info{{{labels}}} 1.0")
