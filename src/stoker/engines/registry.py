"""All engines by name, and how a Python environment that has one starts it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from stoker.base.errors import Fault, Invalid, nearest
from stoker.engines import command, external, llama_cpp, ollama, sglang, simulated, tensorrt_llm, vllm
from stoker.engines.base import Engine

_ALL: Final[tuple[Engine, ...]] = (
    llama_cpp.ENGINE,
    vllm.ENGINE,
    sglang.ENGINE,
    tensorrt_llm.ENGINE,
    ollama.ENGINE,
    external.ENGINE,
    command.ENGINE,
    simulated.ENGINE,
)
ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _ALL})

# What follows the interpreter. Those of Stoker's own run in its own environment (runtime kind embedded).
STARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "llama.cpp": ("-m", "stoker.drivers.llama_server"),
        "simulated": ("-m", "stoker.rehearse"),
        "vllm": ("-m", "vllm.entrypoints.openai.api_server"),
        "sglang": (),  # its adapter writes what follows
        "tensorrt-llm": ("-m", "tensorrt_llm.commands.serve", "serve"),
    }
)


def python_module(name: str) -> tuple[str, ...]:
    """Tell what follows the interpreter to start an engine; raises Invalid for one that is no Python program."""
    if name not in STARTS:
        message = f"'{name}' is not started by a Python"
        raise Invalid(Fault(message=message, field="spec.runtime.kind", hint="kind command with its path"))
    return STARTS[name]


def get(name: str) -> Engine:
    """Find an engine; raises Invalid with the nearest name."""
    engine = ENGINES.get(name)
    if engine is None:
        hint = nearest(name, list(ENGINES)) or f"engines: {', '.join(ENGINES)}"
        raise Invalid(Fault(message=f"there is no engine '{name}'", field="spec.engine.name", hint=hint))
    return engine
