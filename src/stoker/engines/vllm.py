"""vLLM: its OpenAI server. The key goes in by the environment; it guards the paths under /v1 only."""

import json
import re
from collections.abc import Mapping
from typing import Final

from stoker.base.json import Json
from stoker.engines.base import Ask, Capabilities, InForce, Launch, Probes, Reason
from stoker.engines.parts import series
from stoker.engines.parts.answers import model_context, model_names, number, obj, text, truth
from stoker.engines.parts.blocks import Flags, Table, Value, arguments, model_path, one, surroundings, when
from stoker.engines.parts.logs import Lines, trouble
from stoker.engines.parts.standard import Standard
from stoker.spec.deployment import Speculative
from stoker.wire.exposition import scan

_METHODS: Final = {"ngram": "ngram", "draft": "draft_model", "eagle": "eagle", "mtp": "mtp"}
_SIZE: Final = r"([\d.]+) ([KMG]i?B)"


def _speculative(value: Value) -> Flags:
    if not isinstance(value, Speculative):
        return ()
    config: dict[str, str | int] = {"method": _METHODS[value.method]}
    if value.model:
        config["model"] = value.model
    if value.tokens:
        config["num_speculative_tokens"] = value.tokens
    return ("--speculative-config", json.dumps(config))


_TABLE: Final = Table(
    engine="vLLM",
    flags={
        "memory_fraction": one("--gpu-memory-utilization"),
        "max_sequences": one("--max-num-seqs"),
        "context_tokens": one("--max-model-len"),
        "tensor_parallel": one("--tensor-parallel-size"),
        "pipeline_parallel": one("--pipeline-parallel-size"),
        "quantization": one("--quantization"),
        "kv_dtype": one("--kv-cache-dtype"),
        "prefix_cache": when("--enable-prefix-caching", "--no-enable-prefix-caching"),
        "chunk_tokens": one("--max-num-batched-tokens"),
        "speculative": _speculative,
        "tool_parser": lambda value: ("--enable-auto-tool-choice", "--tool-call-parser", str(value)),
        "reasoning_parser": one("--reasoning-parser"),
        "chat_template": one("--chat-template"),
        "embeddings": lambda value: ("--runner", "pooling") if value else (),
    },
    spelled={
        **dict.fromkeys(("--gpu-memory-utilization", "--kv-cache-memory-bytes"), "memory_fraction"),
        "--max-num-seqs": "max_sequences",
        "--max-model-len": "context_tokens",
        **dict.fromkeys(("--tensor-parallel-size", "-tp"), "tensor_parallel"),
        **dict.fromkeys(("--pipeline-parallel-size", "-pp"), "pipeline_parallel"),
        **dict.fromkeys(("--quantization", "-q"), "quantization"),
        "--kv-cache-dtype": "kv_dtype",
        **dict.fromkeys(("--enable-prefix-caching", "--no-enable-prefix-caching"), "prefix_cache"),
        "--max-num-batched-tokens": "chunk_tokens",
        "--speculative-config": "speculative",
        **dict.fromkeys(("--tool-call-parser", "--enable-auto-tool-choice"), "tool_parser"),
        "--reasoning-parser": "reasoning_parser",
        "--chat-template": "chat_template",
        **dict.fromkeys(("--runner", "--task"), "embeddings"),
    },
    own={
        **dict.fromkeys(("--host", "--port", "--uds"), "engines listen on loopback, on a port of their own"),
        "--api-key": "the platform makes a key for each start",
        "--model": "use spec.model or modelCacheRef",
        "--served-model-name": "the served name is the deployment's",
        "--disable-log-stats": "without them there are no metrics",
        "--trust-remote-code": "code from a model's repository is not run here",
        "--lora-modules": "use spec.loraAdapters",
    },
    own_env=frozenset({"VLLM_API_KEY"}),
)

_LINES: Final = Lines(
    ready=re.compile(r"Application startup complete"),
    weights=re.compile(rf"[Mm]odel loading took {_SIZE}"),
    kv_bytes=re.compile(rf"Available KV cache memory: {_SIZE}"),
    kv_tokens=re.compile(r"KV cache size: ([\d,]+) tokens"),
    version=re.compile(r"(?:vLLM API server version|LLM engine \(v)\s*v?(\d+\.\d+[\w.+]*)"),
    loading=re.compile(r"checkpoint shards: +(\d+)% Completed"),
    troubles=(
        trouble(
            r"(No available memory for the cache blocks[^\n]*|KV cache is needed, which is larger[^\n]*|"
            r"Free memory on device[^\n]*less than desired[^\n]*)",
            Reason.OUT_OF_MEMORY,
            "lower spec.engine.contextTokens, or raise memoryFraction when nothing else uses the device",
        ),
        trouble(
            r"(Model architectures? \[[^\]]*\] (?:are|is) not supported[^\n]*|"
            r"does not recognize this architecture[^\n]*)",
            Reason.UNSUPPORTED_ARCHITECTURE,
            "use a newer vLLM, or an engine that knows this architecture",
        ),
        trouble(
            r"(invalid choice: [^\n]*|invalid tool call parser[^\n]*|invalid reasoning parser[^\n]*)",
            Reason.BAD_FLAG,
            "correct the name in spec.engine; the line lists those that exist",
        ),
    ),
)

ROWS: Final = (
    series.row("requests_running", "vllm:num_requests_running"),
    series.row("requests_waiting", "vllm:num_requests_waiting"),
    series.row("kv_cache_utilization_ratio", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", largest=True),
    series.row("requests_preempted_total", "vllm:num_preemptions_total"),
    series.row("prefix_cache_hits_total", "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    series.row("prefix_cache_lookups_total", "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    series.row("prompt_tokens_total", "vllm:prompt_tokens_total"),
    series.row("generation_tokens_total", "vllm:generation_tokens_total"),
    series.row("requests_finished_total", "vllm:request_success_total", expected=False),
    series.row("requests_refused_total", "vllm:admission_rejections_total", expected=False),
    *series.histogram("request_ttft_seconds", "vllm:time_to_first_token_seconds"),
    *series.histogram("request_itl_seconds", "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    *series.histogram("request_tpot_seconds", "vllm:request_time_per_output_token_seconds"),
    *series.histogram("request_duration_seconds", "vllm:e2e_request_latency_seconds"),
    *series.histogram("request_queue_seconds", "vllm:request_queue_time_seconds"),
    *series.histogram("request_prefill_seconds", "vllm:request_prefill_time_seconds"),
    *series.histogram("request_decode_seconds", "vllm:request_decode_time_seconds"),
)


class Vllm(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Write the command line. ``vllm serve`` takes the model as its first word, the module by a flag."""
        model = model_path(self.name, ask)
        named = [model] if ask.executable[-1:] == ("serve",) else ["--model", model]
        argv = [*ask.executable, *named, "--served-model-name", ask.served_name]
        argv += ["--host", "127.0.0.1", "--port", str(ask.port)]
        if ask.lora:
            argv += ["--enable-lora", "--lora-modules", *(f"{name}={path}" for name, path in ask.lora.items())]
        env = surroundings(ask, {"VLLM_API_KEY": ask.secret, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})
        return Launch(argv=(*argv, *arguments(self.table, ask)), env=env)

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """Read ``/v1/models``, ``/version`` and the labels of ``vllm:cache_config_info`` on the metrics page."""
        cache = _cache_config(answers.get("/metrics"))
        blocks, size = number(cache.get("num_gpu_blocks")), number(cache.get("block_size"))
        tokens = number(cache.get("kv_cache_size_tokens")) or (blocks * size if blocks and size else None)
        return InForce(
            context_tokens=model_context(answers),
            prefix_cache=truth(cache.get("enable_prefix_caching")),
            kv_cache_tokens=tokens,
            model_names=model_names(answers),
            version=text(obj(answers.get("/version")).get("version")),
        )


def _cache_config(page: Json) -> Mapping[str, str]:
    samples = scan(page, ("vllm:cache_config_info",)) if isinstance(page, str) else ()
    return next((sample.labels for sample in samples), {})


ENGINE: Final = Vllm(
    name="vllm",
    table=_TABLE,
    lines=_LINES,
    rows=ROWS,
    probes=Probes(in_force=("/v1/models", "/version", "/metrics"), startup=1800.0),
    flags={"tool": "toolParser", "reasoning": "reasoningParser"},
    capabilities=Capabilities(
        dialects=("chat", "completions", "responses", "messages"),
        embeddings=True,
        lora=True,
        bounded_queue=False,
        formats=("safetensors",),
        purpose="GPU fleets: many users at once, tensor and pipeline parallel",
        proven=("0.32.0 (CPU build)",),
        unproven="GPU builds; its key guards only the paths under /v1; log lines of failures are from documentation",
    ),
)
