"""Ollama: everything is said by the environment, it keeps its own models, and it has no metrics and no key."""

import re
from collections.abc import Mapping
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.engines.base import Ask, Capabilities, InForce, Launch, Probes
from stoker.engines.parts.answers import model_names, number, obj, objects, text
from stoker.engines.parts.blocks import Table, arguments, shown, surroundings
from stoker.engines.parts.logs import Lines
from stoker.engines.parts.standard import Standard

_BY_ENV: Final = {
    "context_tokens": "OLLAMA_CONTEXT_LENGTH",
    "max_sequences": "OLLAMA_NUM_PARALLEL",
    "kv_dtype": "OLLAMA_KV_CACHE_TYPE",
}
_TABLE: Final = Table(
    engine="Ollama",
    flags={**dict.fromkeys(_BY_ENV, lambda _: ()), "embeddings": lambda _: ()},
    refused={
        "memory_fraction": "it sizes its cache by itself; set contextTokens and maxSequences",
        "tensor_parallel": "it spreads layers over the devices by itself; set resources.devices",
        "pipeline_parallel": "it spreads layers over the devices by itself; set resources.devices",
        "quantization": "it is part of the model's name, as in qwen3:8b-q4_K_M",
        "prefix_cache": "it cannot be switched; leave it out",
        "chunk_tokens": "use llama.cpp, which has it",
        "speculative": "use llama.cpp, which has it",
        "tool_parser": "it parses by the model's own template; write a Modelfile",
        "reasoning_parser": "it parses by the model's own template; write a Modelfile",
        "chat_template": "it is part of the model; write a Modelfile",
    },
    own_env=frozenset({"OLLAMA_HOST", *_BY_ENV.values()}),
)


class Ollama(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Write the environment; raises Invalid when it is to load files that it did not fetch itself."""
        if ask.model is not None:
            message = "Ollama loads only models of its own store"
            raise Invalid(Fault(message=message, field="spec.model", hint="use engine llama.cpp for a .gguf file"))
        asked = {env: getattr(ask.block, name) for name, env in _BY_ENV.items()}
        own = {env: shown(value) for env, value in asked.items() if value is not None}
        env = surroundings(ask, {"OLLAMA_HOST": f"127.0.0.1:{ask.port}", **own})
        return Launch(argv=(*ask.executable, "serve", *arguments(self.table, ask)), env=env)

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """Read ``/api/ps`` (what is loaded) and ``/api/version``."""
        loaded = objects(obj(answers.get("/api/ps")).get("models"))
        return InForce(
            context_tokens=number(loaded[0].get("context_length")) if loaded else None,
            model_names=model_names(answers),
            version=text(obj(answers.get("/api/version")).get("version")),
        )


ENGINE: Final = Ollama(
    name="ollama",
    table=_TABLE,
    lines=Lines(
        ready=re.compile(r"Listening on 127\.0\.0\.1"), version=re.compile(r"Listening on \S+ \(version ([\w.-]+)\)")
    ),
    probes=Probes(health="/", metrics="", in_force=("/v1/models", "/api/ps", "/api/version")),
    capabilities=Capabilities(
        dialects=("chat", "completions", "responses", "messages"),
        embeddings=True,
        cancels_unstreamed=False,
        keyed=False,
        purpose="a workstation where people already use it",
        unproven="never run here: names are from its repository; it knows no key, so any process on its machine "
        "can call it; whether it cancels what is not streamed is not known, so all is streamed",
    ),
)
