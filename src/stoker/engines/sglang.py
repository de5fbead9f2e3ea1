"""SGLang. It takes its key by a flag only, so a few words of Python put the flag in where no process list shows it."""

import re
from collections.abc import Mapping
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.engines.base import Ask, Capabilities, InForce, Launch, Probes, Reason
from stoker.engines.parts import series
from stoker.engines.parts.answers import model_context, model_names, number, obj, text, truth
from stoker.engines.parts.blocks import Flags, Table, Value, arguments, model_path, one, surroundings
from stoker.engines.parts.logs import Lines, trouble
from stoker.engines.parts.standard import Standard
from stoker.spec.deployment import Speculative

# Run by the engine's own Python: the key joins the arguments inside the process, after the kernel has kept its copy.
_START: Final = (
    "import os, runpy, sys; "
    "sys.argv += ['--api-key', os.environ['STOKER_ENGINE_SECRET']]; "
    "runpy.run_module('sglang.launch_server', run_name='__main__')"
)
_METHODS: Final = {"ngram": "NGRAM", "draft": "STANDALONE", "eagle": "EAGLE", "mtp": "NEXTN"}
_SIZE: Final = r"([\d.]+) ([KMG]i?B)"


def _speculative(value: Value) -> Flags:
    if not isinstance(value, Speculative):
        return ()
    model = ("--speculative-draft-model-path", value.model) if value.model else ()
    count = ("--speculative-num-draft-tokens", str(value.tokens)) if value.tokens else ()
    return ("--speculative-algorithm", _METHODS[value.method], *model, *count)


_TABLE: Final = Table(
    engine="SGLang",
    flags={
        "memory_fraction": one("--mem-fraction-static"),
        "max_sequences": one("--max-running-requests"),
        "context_tokens": one("--context-length"),
        "tensor_parallel": one("--tp-size"),
        "pipeline_parallel": one("--pp-size"),
        "quantization": one("--quantization"),
        "kv_dtype": one("--kv-cache-dtype"),
        "prefix_cache": lambda value: () if value else ("--disable-radix-cache",),
        "chunk_tokens": one("--chunked-prefill-size"),
        "speculative": _speculative,
        "tool_parser": one("--tool-call-parser"),
        "reasoning_parser": one("--reasoning-parser"),
        "chat_template": one("--chat-template"),
        "embeddings": lambda value: ("--is-embedding",) if value else (),
    },
    spelled={
        "--mem-fraction-static": "memory_fraction",
        "--max-running-requests": "max_sequences",
        "--context-length": "context_tokens",
        **dict.fromkeys(("--tp-size", "--tp", "--tensor-parallel-size"), "tensor_parallel"),
        **dict.fromkeys(("--pp-size", "--pp", "--pipeline-parallel-size"), "pipeline_parallel"),
        "--quantization": "quantization",
        "--kv-cache-dtype": "kv_dtype",
        "--disable-radix-cache": "prefix_cache",
        "--chunked-prefill-size": "chunk_tokens",
        "--speculative-algorithm": "speculative",
        "--tool-call-parser": "tool_parser",
        "--reasoning-parser": "reasoning_parser",
        "--chat-template": "chat_template",
        "--is-embedding": "embeddings",
    },
    own={
        **dict.fromkeys(("--host", "--port"), "engines listen on loopback, on a port of their own"),
        "--api-key": "the platform makes a key for each start",
        **dict.fromkeys(("--model-path", "--model"), "use spec.model or modelCacheRef"),
        "--served-model-name": "the served name is the deployment's",
        "--enable-metrics": "they are always on",
        "--trust-remote-code": "code from a model's repository is not run here",
        "--lora-paths": "use spec.loraAdapters",
    },
)

_LINES: Final = Lines(
    ready=re.compile(r"The server is fired up and ready to roll|Application startup complete"),
    weights=re.compile(r"Load weight end\.[^\n]*mem usage=([\d.]+) ?([KMG]i?B)"),
    kv_bytes=re.compile(rf"KV size: {_SIZE}"),
    kv_tokens=re.compile(r"max_total_num_tokens=(\d+)"),
    loading=re.compile(r"checkpoint shards: +(\d+)% Completed"),
    troubles=(
        trouble(
            r"(Not enough memory[^\n]*|Loading the model failed: out of memory[^\n]*)",
            Reason.OUT_OF_MEMORY,
            "lower spec.engine.contextTokens or maxSequences, or set memoryFraction",
        ),
        trouble(
            r"(Model architectures? \[[^\]]*\] (?:are|is) not supported[^\n]*|"
            r"does not recognize this architecture[^\n]*)",
            Reason.UNSUPPORTED_ARCHITECTURE,
            "use a newer SGLang, or an engine that knows this architecture",
        ),
    ),
)

_ROWS: Final = (
    series.row("requests_running", "sglang:num_running_reqs"),
    series.row("requests_waiting", "sglang:num_queue_reqs"),
    series.row("kv_cache_utilization_ratio", "sglang:token_usage", largest=True),
    series.row("requests_preempted_total", "sglang:num_retracted_requests_total", expected=False),
    series.row("prefix_cache_hits_total", "sglang:cached_tokens_total", expected=False),
    series.row("prompt_tokens_total", "sglang:prompt_tokens_total"),
    series.row("generation_tokens_total", "sglang:generation_tokens_total"),
    *series.histogram("request_ttft_seconds", "sglang:time_to_first_token_seconds"),
    *series.histogram("request_itl_seconds", "sglang:inter_token_latency_seconds"),
    *series.histogram("request_tpot_seconds", "sglang:request_time_per_output_token_seconds"),
    *series.histogram("request_duration_seconds", "sglang:e2e_request_latency_seconds"),
    *series.histogram("request_queue_seconds", "sglang:queue_time_seconds"),
)


class Sglang(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Write the command line; ``executable`` is the Python that has SGLang."""
        if len(ask.executable) != 1:
            message = "SGLang is started by the Python that has it"
            raise Invalid(Fault(message=message, field="spec.runtime", hint="kind python with its path"))
        argv = [*ask.executable, "-c", _START, "--model-path", model_path(self.name, ask)]
        argv += ["--served-model-name", ask.served_name, "--host", "127.0.0.1", "--port", str(ask.port)]
        argv += ["--enable-metrics", "--enable-cache-report"]
        if ask.lora:
            argv += ["--enable-lora", "--lora-paths", *(f"{name}={path}" for name, path in ask.lora.items())]
        env = surroundings(ask, {"STOKER_ENGINE_SECRET": ask.secret, "HF_HUB_OFFLINE": "1"})
        return Launch(argv=(*argv, *arguments(self.table, ask)), env=env)

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """Read ``/server_info``, which repeats its arguments and what they became."""
        info = obj(answers.get("/server_info"))
        off = truth(info.get("disable_radix_cache"))
        return InForce(
            context_tokens=number(info.get("context_length")) or model_context(answers),
            max_sequences=number(info.get("max_running_requests")),
            prefix_cache=None if off is None else not off,
            kv_cache_tokens=number(info.get("max_total_num_tokens")),
            model_names=model_names(answers),
            version=text(info.get("version")),
        )


ENGINE: Final = Sglang(
    name="sglang",
    table=_TABLE,
    lines=_LINES,
    rows=_ROWS,
    probes=Probes(in_force=("/server_info", "/v1/models"), startup=1800.0),
    flags={"tool": "toolParser", "reasoning": "reasoningParser"},
    capabilities=Capabilities(
        dialects=("chat", "completions", "responses", "messages"),
        embeddings=True,
        lora=True,
        bounded_queue=False,
        formats=("safetensors",),
        purpose="GPU fleets with much shared prefix, such as agents",
        unproven="never run here: flags and metric names are from the source of 0.5.23, log lines from documentation",
    ),
)
