"""llama.cpp's server: the embedded one of the xllamacpp wheel, or any ``llama-server``; both take this command line.

Seen on real servers, and designed for:
1. The context is divided by the slots, so ``-c`` is asked for all of them together.
2. It queues without bound, does not cancel what is not streamed, and accepts any model name: the gateway sees to that.
3. Spinning OpenMP threads bring two busy cores to one token a second: they must wait passively.
"""

import re
from collections.abc import Mapping
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.engines.base import Ask, Capabilities, InForce, Launch, Model, Probes, Reason
from stoker.engines.parts import series
from stoker.engines.parts.answers import model_names, number, obj, objects, text
from stoker.engines.parts.blocks import Flags, Table, Value, arguments, model_path, one, surroundings
from stoker.engines.parts.logs import Lines, trouble
from stoker.engines.parts.standard import Standard
from stoker.spec.deployment import EngineBlock, Speculative

_AUTO_SLOTS: Final = 4  # what llama-server itself takes when it is not told
_KV_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_SIZE: Final = r"([\d.]+) ([KMG]i?B)"


def slots_of(block: EngineBlock) -> int:
    """How many requests run at once."""
    return block.max_sequences or _AUTO_SLOTS


def _kv(value: Value) -> Flags:
    if value not in _KV_TYPES:
        message = f"llama.cpp has no KV type '{value}'"
        raise Invalid(Fault(message=message, field="spec.engine.kvDtype", hint=f"one of {', '.join(_KV_TYPES)}"))
    return ("-ctk", str(value), "-ctv", str(value))


def _chunk(value: Value) -> Flags:
    return ("-b", str(value), "-ub", str(value))


def _speculative(value: Value) -> Flags:
    if not isinstance(value, Speculative) or value.method not in ("draft", "ngram"):
        method = value.method if isinstance(value, Speculative) else value
        message = f"llama.cpp is not driven with speculative method '{method}' here"
        raise Invalid(Fault(message=message, field="spec.engine.speculative.method", hint="draft or ngram"))
    count = ("--spec-draft-n-max", str(value.tokens)) if value.tokens else ()
    if value.method == "ngram":
        return ("--spec-type", "ngram-simple")
    if not value.model:
        message = "method draft needs the path of a draft model"
        raise Invalid(Fault(message=message, field="spec.engine.speculative.model"))
    return ("--spec-draft-model", value.model, *count)


_TABLE: Final = Table(
    engine="llama.cpp",
    flags={
        "max_sequences": lambda _: (),  # written with the context: the one divides the other
        "context_tokens": lambda _: (),
        "kv_dtype": _kv,
        "prefix_cache": lambda value: () if value else ("--no-cache-prompt",),
        "chunk_tokens": _chunk,
        "speculative": _speculative,
        "reasoning_parser": one("--reasoning-format"),
        "chat_template": one("--chat-template-file"),
        "embeddings": lambda value: ("--embedding", "--pooling", "mean") if value else (),
    },
    refused={
        "memory_fraction": "its cache is as large as contextTokens times maxSequences; set those",
        "tensor_parallel": "it spreads layers over the devices by itself; set resources.devices",
        "pipeline_parallel": "it spreads layers over the devices by itself; set resources.devices",
        "quantization": "the .gguf file is quantized already; choose another file",
        "tool_parser": "it parses by the chat template; set chatTemplate",
    },
    spelled={
        **dict.fromkeys(("-c", "--ctx-size"), "context_tokens"),
        **dict.fromkeys(("-np", "--parallel"), "max_sequences"),
        **dict.fromkeys(("-ctk", "-ctv", "--cache-type-k", "--cache-type-v"), "kv_dtype"),
        **dict.fromkeys(("-b", "--batch-size", "-ub", "--ubatch-size"), "chunk_tokens"),
        **dict.fromkeys(("--cache-prompt", "--no-cache-prompt"), "prefix_cache"),
        **dict.fromkeys(("--chat-template-file", "--chat-template"), "chat_template"),
        **dict.fromkeys(("--embedding", "--embeddings"), "embeddings"),
        **dict.fromkeys(("--spec-draft-model", "-md", "--model-draft", "--spec-type"), "speculative"),
        "--reasoning-format": "reasoning_parser",
    },
    own={
        **dict.fromkeys(("--host", "--port"), "engines listen on loopback, on a port of their own"),
        **dict.fromkeys(("--api-key", "--api-key-file"), "the platform makes a key for each start"),
        **dict.fromkeys(("-m", "--model"), "use spec.model or modelCacheRef"),
        **dict.fromkeys(("-a", "--alias"), "the served name is the deployment's"),
        "--metrics": "they are always on",
        "--lora": "use spec.loraAdapters",
    },
    own_env=frozenset({"LLAMA_API_KEY", "LLAMA_ARG_API_KEY_FILE", "LLAMA_ARG_HOST", "LLAMA_ARG_PORT"}),
)

_LINES: Final = Lines(
    ready=re.compile(r"model loaded|server is listening on"),
    weights=re.compile(rf"model buffer size = +{_SIZE}"),
    kv_bytes=re.compile(rf"KV buffer size = +{_SIZE}"),
    kv_tokens=re.compile(r"n_slots = (\d+), n_ctx_slot = (\d+)"),
    version=re.compile(r"build_info: (b[1-9]\d*\S*)"),
    troubles=(
        trouble(
            r"(insufficient memory \(attempted[^\n]*|failed to allocate[^\n]*buffer[^\n]*|unable to allocate[^\n]*)",
            Reason.OUT_OF_MEMORY,
            "lower spec.engine.contextTokens or maxSequences, or use a smaller quantization",
        ),
        trouble(
            r"(unknown model architecture: '[^']*')",
            Reason.UNSUPPORTED_ARCHITECTURE,
            "use a newer llama.cpp, or an engine that knows this architecture",
        ),
        trouble(
            r"(failed to read key-value pairs|invalid magic characters[^\n]*|tensor '[^']*' data is not within[^\n]*|"
            r"failed to open GGUF file[^\n]*)",
            Reason.MODEL_NOT_FOUND,
            "the model file is cut or damaged: fetch it again and compare its sha256",
        ),
        trouble(
            r"(unknown value for [^\n]*|Unsupported cache type[^\n]*)",
            Reason.BAD_FLAG,
            "correct the value in spec.engine",
        ),
    ),
)

_ROWS: Final = (
    series.row("requests_running", "llamacpp:requests_processing"),
    series.row("requests_waiting", "llamacpp:requests_deferred"),
    # Its counter of prompt tokens leaves out the cached ones, which every other engine counts in.
    series.row("prompt_tokens_total", "llamacpp:prompt_tokens_total+llamacpp:prompt_tokens_cached_total"),
    series.row("generation_tokens_total", "llamacpp:tokens_predicted_total"),
    series.row("prefix_cache_hits_total", "llamacpp:prompt_tokens_cached_total"),
    series.row("prefix_cache_lookups_total", "llamacpp:prompt_tokens_total+llamacpp:prompt_tokens_cached_total"),
    series.row("spec_decode_drafted_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total", expected=False),
    series.row("spec_decode_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total", expected=False),
)


class LlamaCpp(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Write the command line."""
        block, slots = ask.block, slots_of(ask.block)
        argv = [*ask.executable, "-m", model_path(self.name, ask), "--alias", ask.served_name]
        argv += ["--host", "127.0.0.1", "--port", str(ask.port), "--api-key-file", ask.secret_file]
        if not {"-np", "--parallel"} & set(block.extra_args):
            argv += ["-np", str(slots)]
        if block.context_tokens:
            argv += ["-c", str(block.context_tokens * slots)]
        # The other core serves the gateway: with all of them decoding, every token would wait for it.
        argv += ["-t", str(max(1, ask.cores - 1))]
        argv += ["-ngl", "999" if any(d != "cpu" for d in ask.devices) else "0"]
        argv += ["--jinja", "--metrics", "--slots", *[word for path in ask.lora.values() for word in ("--lora", path)]]
        env = surroundings(ask, {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"})
        return Launch(argv=(*argv, *arguments(self.table, ask)), env=env)

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """Read ``/props``, ``/slots`` and ``/v1/models``: n_ctx there is that of one slot."""
        props = obj(answers.get("/props"))
        slots = objects(answers.get("/slots"))
        context = number(obj(props.get("default_generation_settings")).get("n_ctx"))
        context = context or (number(slots[0].get("n_ctx")) if slots else None)
        sequences = number(props.get("total_slots")) or len(slots) or None
        build = text(props.get("build_info"))
        return InForce(
            context_tokens=context,
            max_sequences=sequences,
            kv_cache_tokens=context * sequences if context and sequences else None,
            model_names=model_names(answers),
            # The wheel's build says "b0-unknown", which is no version.
            version=None if build is None or build.startswith("b0-") else build,
        )

    def effective_context(self, block: EngineBlock, model: Model | None) -> int:
        """Without a wish the model's own context is divided by the slots."""
        return block.context_tokens or (model.context_tokens // slots_of(block) if model else 0)


ENGINE: Final = LlamaCpp(
    name="llama.cpp",
    table=_TABLE,
    lines=_LINES,
    rows=_ROWS,
    # On a CPU one batch of a long prompt may take minutes, in which no other request gets a token either.
    probes=Probes(in_force=("/props", "/slots", "/v1/models"), startup=300.0, generate=120.0, stalled=600.0),
    flags={"tool": "chatTemplate: a file whose template writes tool calls", "reasoning": "reasoningParser: deepseek"},
    capabilities=Capabilities(
        # It has responses and messages too, but there it refuses null, forgets formats, numbers no events and opens a
        # tool call inside a text: what it is asked in chat comes back whole in any dialect.
        dialects=("chat", "completions"),
        embeddings=True,
        lora=True,
        cancels_unstreamed=False,
        bounded_queue=False,
        formats=("gguf",),
        purpose="CPUs and single GPUs, quantized models in one file; the embedded default",
        proven=("xllamacpp 2026.10.11549",),
        unproven="GPU builds, LoRA and speculative decoding were not run",
    ),
)
