"""TensorRT-LLM by ``trtllm-serve``. Its ``/metrics`` is JSON that is gone once read; the page is elsewhere."""

import re
from collections.abc import Mapping
from typing import Final

from stoker.base.json import Json
from stoker.engines.base import Ask, Capabilities, InForce, Launch, Probes, Reason
from stoker.engines.parts import series
from stoker.engines.parts.answers import model_names, obj, text
from stoker.engines.parts.blocks import Flags, Table, Value, arguments, model_path, one, surroundings
from stoker.engines.parts.logs import Lines, trouble
from stoker.engines.parts.standard import Standard


def setting(path: str) -> "Setting":
    """A setting without a flag of its own, written by ``--set PATH=VALUE``."""
    return Setting(path)


class Setting:
    """Writes ``--set path=value``."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, value: Value) -> Flags:
        """Write it."""
        shown = str(value).lower() if isinstance(value, bool) else value
        return ("--set", f"{self.path}={shown}")


_TABLE: Final = Table(
    engine="TensorRT-LLM",
    flags={
        "memory_fraction": one("--kv_cache_free_gpu_memory_fraction"),
        "max_sequences": one("--max_batch_size"),
        "context_tokens": one("--max_seq_len"),
        "tensor_parallel": one("--tp_size"),
        "pipeline_parallel": one("--pp_size"),
        "kv_dtype": setting("kv_cache_config.dtype"),
        "prefix_cache": setting("kv_cache_config.enable_block_reuse"),
        "chunk_tokens": one("--max_num_tokens"),
        "tool_parser": one("--tool_parser"),
        "reasoning_parser": one("--reasoning_parser"),
        "chat_template": one("--chat_template"),
    },
    refused={
        "quantization": "it reads how a checkpoint is quantized from the checkpoint; choose another one",
        "speculative": "write its speculative settings with extraArgs: [--config, FILE]",
        "embeddings": "use vllm, sglang or llama.cpp for embeddings",
    },
    spelled={
        "--kv_cache_free_gpu_memory_fraction": "memory_fraction",
        "--max_batch_size": "max_sequences",
        "--max_seq_len": "context_tokens",
        "--tp_size": "tensor_parallel",
        "--pp_size": "pipeline_parallel",
        "--max_num_tokens": "chunk_tokens",
        "--tool_parser": "tool_parser",
        "--reasoning_parser": "reasoning_parser",
        "--chat_template": "chat_template",
    },
    own={
        **dict.fromkeys(("--host", "--port"), "engines listen on loopback, on a port of their own"),
        "--trust_remote_code": "code from a model's repository is not run here",
    },
)

_LINES: Final = Lines(
    ready=re.compile(r"Application startup complete"),
    kv_bytes=re.compile(r"Allocated ([\d.]+) ([KMG]i?B) for max tokens in paged KV cache"),
    kv_tokens=re.compile(r"for max tokens in paged KV cache \((\d+)\)"),
    version=re.compile(r"TensorRT-LLM version: (\S+)"),
    troubles=(
        trouble(
            r"(Unknown architecture for AutoModelForCausalLM[^\n]*|does not recognize this architecture[^\n]*)",
            Reason.UNSUPPORTED_ARCHITECTURE,
            "use a newer TensorRT-LLM, or an engine that knows this architecture",
        ),
    ),
)

_ROWS: Final = (
    series.row("requests_running", "trtllm_num_requests_running"),
    series.row("requests_waiting", "trtllm_num_requests_waiting"),
    series.row("kv_cache_utilization_ratio", "trtllm_kv_cache_utilization", largest=True),
    series.row("prefix_cache_hits_total", "trtllm_prompt_cached_tokens_total", expected=False),
    series.row("prompt_tokens_total", "trtllm_prompt_tokens_total"),
    series.row("generation_tokens_total", "trtllm_generation_tokens_total"),
    series.row("requests_finished_total", "trtllm_request_success_total", expected=False),
    *series.histogram("request_ttft_seconds", "trtllm_time_to_first_token_seconds"),
    *series.histogram("request_tpot_seconds", "trtllm_time_per_output_token_seconds"),
    *series.histogram("request_duration_seconds", "trtllm_e2e_request_latency_seconds"),
    *series.histogram("request_queue_seconds", "trtllm_request_queue_time_seconds"),
    *series.histogram("request_prefill_seconds", "trtllm_request_prefill_time_seconds"),
    *series.histogram("request_decode_seconds", "trtllm_request_decode_time_seconds"),
)


class TensorRtLlm(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Write the command line; without the two settings its metrics page stays empty."""
        argv = [*ask.executable, model_path(self.name, ask), "--host", "127.0.0.1", "--port", str(ask.port)]
        argv += ["--set", "return_perf_metrics=true", "--set", "enable_iter_perf_stats=true"]
        return Launch(argv=(*argv, *arguments(self.table, ask)), env=surroundings(ask, {"HF_HUB_OFFLINE": "1"}))

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """It tells its models and its version, and nothing of its settings."""
        return InForce(model_names=model_names(answers), version=text(obj(answers.get("/version")).get("version")))


ENGINE: Final = TensorRtLlm(
    name="tensorrt-llm",
    table=_TABLE,
    lines=_LINES,
    rows=_ROWS,
    probes=Probes(metrics="/prometheus/metrics", in_force=("/v1/models", "/version"), startup=3600.0),
    flags={"tool": "toolParser", "reasoning": "reasoningParser"},
    capabilities=Capabilities(
        dialects=("chat", "completions", "responses"),
        bounded_queue=False,
        formats=("safetensors",),
        keyed=False,
        purpose="NVIDIA fleets where the last bit of speed pays for longer starts",
        unproven="never run here: names are from its repository in 2026, not from 1.2.1; it knows no key, so any "
        "process on its machine can call it; the name it serves is the model's path",
    ),
)
