"""What does the engine say of itself to Prometheus? Under vLLM's names of today, its older ones, or SGLang's."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from stoker.predict.batching.machine import Machine
from stoker.rehearse.batch.clockwork import Clockwork, Histogram
from stoker.rehearse.batch.rig import Names, Rig


class _Row(NamedTuple):
    kind: str
    name: str
    value: float


_OLD: Final = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_queries_total": "vllm:gpu_prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total": "vllm:gpu_prefix_cache_hits_total",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}


def page(clockwork: Clockwork, rig: Rig, *, model: str, finished: Mapping[str, int]) -> str:
    """Write the page."""
    sglang = rig.names == "sglang"
    label = f'engine_type="unified",model_name="{model}",tp_rank="0"' if sglang else f'engine="0",model_name="{model}"'
    rows = _sglang(clockwork, rig) if sglang else _vllm(clockwork)
    lines = [
        f"# TYPE {_named(row.name, rig.names)} {row.kind}\n{_named(row.name, rig.names)}{{{label}}} {row.value}"
        for row in rows
    ]
    prefix = "sglang" if sglang else "vllm"
    for name, histogram in (
        (f"{prefix}:time_to_first_token_seconds", clockwork.ttft),
        (f"{prefix}:inter_token_latency_seconds", clockwork.itl),
        (f"{prefix}:e2e_request_latency_seconds", clockwork.e2e),
    ):
        lines += _histogram(_named(name, rig.names), histogram, label)
    if not sglang:
        for reason, count in sorted(finished.items()):
            lines.append(f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {float(count)}')
        lines.append(_cache_config(rig))
    return "\n".join(lines) + "\n"


def _vllm(clockwork: Clockwork) -> Iterator[_Row]:
    machine, gauges = clockwork.machine, clockwork.machine.gauges
    yield _Row("gauge", "vllm:num_requests_running", float(machine.running))
    yield _Row("gauge", "vllm:num_requests_waiting", float(machine.waiting))
    yield _Row("gauge", "vllm:kv_cache_usage_perc", used(machine))
    yield _Row("counter", "vllm:num_preemptions_total", float(gauges.preemptions))
    yield _Row("counter", "vllm:prefix_cache_queries_total", float(gauges.prompt_tokens))
    yield _Row("counter", "vllm:prefix_cache_hits_total", float(gauges.hit_tokens))
    yield _Row("counter", "vllm:prompt_tokens_total", float(gauges.prompt_tokens))
    yield _Row("counter", "vllm:generation_tokens_total", _generated(clockwork))


def _sglang(clockwork: Clockwork, rig: Rig) -> Iterator[_Row]:
    machine, gauges = clockwork.machine, clockwork.machine.gauges
    yield _Row("gauge", "sglang:num_running_reqs", float(machine.running))
    yield _Row("gauge", "sglang:num_queue_reqs", float(machine.waiting))
    yield _Row("gauge", "sglang:num_used_tokens", round(used(machine) * rig.kv_cache_tokens))
    yield _Row("gauge", "sglang:token_usage", used(machine))
    yield _Row("gauge", "sglang:max_total_num_tokens", float(rig.kv_cache_tokens))
    yield _Row("gauge", "sglang:cache_hit_rate", gauges.hit_tokens / (gauges.prompt_tokens or 1))
    yield _Row("counter", "sglang:num_retractions_total", float(gauges.preemptions))
    yield _Row("counter", "sglang:cached_tokens_total", float(gauges.hit_tokens))
    yield _Row("counter", "sglang:prompt_tokens_total", float(gauges.prompt_tokens))
    yield _Row("counter", "sglang:generation_tokens_total", _generated(clockwork))


def used(machine: Machine) -> float:
    """Give the share of the cache that running requests hold."""
    blocks = machine.blocks
    return (blocks.total - blocks.available) / blocks.total


def _generated(clockwork: Clockwork) -> float:
    return float(clockwork.machine.gauges.decoded_tokens + clockwork.ttft.count)


def _named(name: str, names: Names) -> str:
    return _OLD.get(name, name) if names == "vllm-old" else name


def _histogram(name: str, seen: Histogram, label: str) -> Iterator[str]:
    yield f"# TYPE {name} histogram"
    counts = seen.counts or [0] * len(seen.bounds)
    for bound, count in zip(seen.bounds, counts, strict=True):
        yield f'{name}_bucket{{{label},le="{bound}"}} {float(count)}'
    yield f'{name}_bucket{{{label},le="+Inf"}} {float(seen.count)}'
    yield f"{name}_sum{{{label}}} {seen.total}"
    yield f"{name}_count{{{label}}} {float(seen.count)}"


def _cache_config(rig: Rig) -> str:
    """Write the labels by which vLLM tells what its cache holds."""
    told = {
        "block_size": rig.block_tokens,
        "cache_dtype": "auto",
        "enable_prefix_caching": rig.prefix_cache,
        "engine": "0",
        "kv_cache_size_tokens": rig.kv_cache_tokens,
        "num_gpu_blocks": rig.limits.blocks,
    }
    labels = ",".join(f'{name}="{value}"' for name, value in told.items())
    return f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{labels}}} 1.0"
