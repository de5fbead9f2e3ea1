"""Our scripted engine: real dialect, real metric names, faults from a file; for tests and rehearsals."""

import re
from typing import Final

from stoker.engines import vllm
from stoker.engines.base import Ask, Capabilities, Launch, Probes
from stoker.engines.parts.blocks import Table, arguments, one, surroundings
from stoker.engines.parts.logs import Lines
from stoker.engines.parts.standard import Standard

_NO_DEVICE: Final = "the scripted engine has no device; leave it out"
_TABLE: Final = Table(
    engine="the scripted engine",
    flags={
        "max_sequences": one("--max-sequences"),
        "context_tokens": one("--context-tokens"),
        "tool_parser": one("--tool-parser"),
        "reasoning_parser": one("--reasoning-parser"),
        "embeddings": lambda _: (),
    },
    refused={
        **dict.fromkeys(
            ("memory_fraction", "tensor_parallel", "pipeline_parallel", "quantization", "kv_dtype"), _NO_DEVICE
        ),
        **dict.fromkeys(
            ("prefix_cache", "chunk_tokens", "speculative"), "the scripted engine computes nothing; leave it out"
        ),
        "chat_template": "the scripted engine has no template; leave it out",
    },
    spelled={
        "--max-sequences": "max_sequences",
        "--context-tokens": "context_tokens",
        "--tool-parser": "tool_parser",
        "--reasoning-parser": "reasoning_parser",
    },
    own={
        **dict.fromkeys(("--host", "--port"), "engines listen on loopback, on a port of their own"),
        "--secret-file": "the platform makes a key for each start",
        "--model": "the served name is the deployment's",
    },
)


class Simulated(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Write the command line."""
        argv = (*ask.executable, "--port", str(ask.port), "--secret-file", ask.secret_file, "--model", ask.served_name)
        return Launch(argv=(*argv, *arguments(self.table, ask)), env=surroundings(ask, {}))


_SHOWN: Final = frozenset(
    {
        "requests_running",
        "requests_waiting",
        "kv_cache_utilization_ratio",
        "requests_preempted_total",
        "prefix_cache_hits_total",
        "prefix_cache_lookups_total",
        "prompt_tokens_total",
        "generation_tokens_total",
    }
)
ENGINE: Final = Simulated(
    name="simulated",
    table=_TABLE,
    lines=Lines(ready=re.compile(r"listening on 127\.0\.0\.1")),
    rows=tuple(row for row in vllm.ROWS if row.fleet in _SHOWN),
    probes=Probes(in_force=("/v1/models",), startup=60.0, generate=30.0),
    flags={"tool": "toolParser", "reasoning": "reasoningParser"},
    capabilities=Capabilities(
        dialects=("chat", "completions", "responses", "messages"),
        embeddings=True,
        bounded_queue=False,
        purpose="tests and rehearsals without a model: its text is from a script, its faults from a file",
        proven=("of this version",),
    ),
)
