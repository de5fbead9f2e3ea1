"""An opaque command: the platform starts, probes and meters it, and knows nothing of its settings.

``$(NAME)`` in the command stands for a variable of the environment contract, as on Kubernetes; so the engine learns its
port. Its key is in the environment and in a file, never in the command.
"""

import re
from collections.abc import Mapping
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.engines import llama_cpp, sglang, tensorrt_llm, vllm
from stoker.engines.base import Ask, Capabilities, Launch, Probes
from stoker.engines.parts import series
from stoker.engines.parts.blocks import UNMAPPED, Table, arguments, surroundings
from stoker.engines.parts.logs import Lines
from stoker.engines.parts.standard import Standard
from stoker.spec.deployment import EngineBlock

_VARIABLE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_SECRET: Final = "STOKER_ENGINE_SECRET"  # noqa: S105 - the name of a variable
_TOLD: Final = ("context_tokens", "max_sequences")  # not set, but told to the gateway
_KNOWN: Final = (llama_cpp.ENGINE, sglang.ENGINE, tensorrt_llm.ENGINE, vllm.ENGINE)

_TABLE: Final = Table(
    engine="an opaque command",
    flags=dict.fromkeys(_TOLD, lambda _: ()),
    refused={
        name: "write it into runtime.command" for name in EngineBlock.model_fields if name not in {*UNMAPPED, *_TOLD}
    },
    own_env=frozenset({_SECRET}),
)


class Command(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> Launch:
        """Fill in the variables; raises Invalid for one that is not there, and for the key."""
        path = {"STOKER_MODEL_PATH": ask.model.path} if ask.model else {}
        env = surroundings(ask, {_SECRET: ask.secret, **path})
        words = (*ask.executable, *arguments(self.table, ask))
        return Launch(argv=tuple(_filled(word, env) for word in words), env=env)

    def metrics(self, page: str) -> Mapping[str, float]:
        """Read the names of whichever engine is behind it."""
        answer: dict[str, float] = {}
        for engine in _KNOWN:
            answer |= series.read(engine.rows, page)
        return answer


def _filled(word: str, env: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name == _SECRET:
            message = "a key in a command is readable by every process of the machine"
            raise Invalid(Fault(message=message, field="spec.runtime.command", hint=f"let the engine read ${_SECRET}"))
        if name not in env:
            message = f"there is no variable '{name}'"
            raise Invalid(
                Fault(message=message, field="spec.runtime.command", hint=f"there are {', '.join(sorted(env))}")
            )
        return env[name]

    return _VARIABLE.sub(fill, word)


ENGINE: Final = Command(
    name="command",
    table=_TABLE,
    lines=Lines(ready=re.compile(r"Application startup complete|server is listening|Listening on|fired up")),
    probes=Probes(in_force=("/v1/models",), startup=1800.0),
    flags={
        "tool": "the engine's own flag, in runtime.command",
        "reasoning": "the engine's own flag, in runtime.command",
    },
    capabilities=Capabilities(
        embeddings=True,
        cancels_unstreamed=False,
        bounded_queue=False,
        keyed=False,
        purpose="any server that speaks the OpenAI API: only probed and metered",
        unproven="nothing is known of it, so the careful choice is made everywhere",
    ),
)
