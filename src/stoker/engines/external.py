"""Any OpenAI-compatible server that somebody else runs: it is asked and metered, never started."""

import re
from collections.abc import Mapping
from typing import Final, NoReturn

from stoker.base.errors import Fault, Invalid
from stoker.engines import sglang, vllm
from stoker.engines.base import Ask, Capabilities, Probes
from stoker.engines.parts import series
from stoker.engines.parts.blocks import Table
from stoker.engines.parts.logs import Lines
from stoker.engines.parts.standard import Standard


class External(Standard):
    """The adapter."""

    __slots__ = ()

    def launch(self, ask: Ask) -> NoReturn:
        """Refuse: there is nothing to start."""
        message = f"'{ask.block.name}' runs elsewhere, so nothing is started for it"
        raise Invalid(Fault(message=message, field="spec.engine.name", hint="declare a ModelEndpoint with its origin"))

    def metrics(self, page: str) -> Mapping[str, float]:
        """Read the names of whichever engine is behind it."""
        return {**series.read(sglang.ENGINE.rows, page), **series.read(vllm.ENGINE.rows, page)}


ENGINE: Final = External(
    name="external",
    table=Table(engine="external"),
    lines=Lines(ready=re.compile(r"(?!)")),
    probes=Probes(health="", metrics="", in_force=("/v1/models",)),
    flags={"tool": "the setting of the server that runs it", "reasoning": "the setting of the server that runs it"},
    capabilities=Capabilities(
        embeddings=True,
        keyed=False,
        purpose="a provider, or a server that another team runs: declare a ModelEndpoint",
        unproven="what it can do depends on who runs it",
    ),
)
