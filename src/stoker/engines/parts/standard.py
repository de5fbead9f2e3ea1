"""What all adapters have in common: a frozen description, and methods that read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoker.base.json import Json, JsonObject
from stoker.engines.base import Capabilities, Explained, InForce, LogFacts, Model, Probes
from stoker.engines.parts import logs, series
from stoker.engines.parts.answers import model_context, model_names
from stoker.engines.parts.blocks import Table
from stoker.spec.deployment import EngineBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """One engine's facts. An adapter adds how it is launched, and overrides what it does otherwise."""

    name: str
    table: Table
    lines: logs.Lines
    capabilities: Capabilities
    probes: Probes
    rows: tuple[series.Row, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)  # what turns on parsing, by "tool" and "reasoning"

    def metrics(self, page: str) -> Mapping[str, float]:
        """Read a metrics page into fleet names."""
        return series.read(self.rows, page)

    def expected_metrics(self) -> Sequence[str]:
        """Name what should be on the page."""
        return series.expected(self.rows)

    def read_log(self, lines: Sequence[str]) -> LogFacts:
        """Read start-up facts from log lines."""
        return logs.read(lines, self.lines)

    def explain(self, *, code: int | None, signal: int | None, log_tail: Sequence[str]) -> Explained:
        """Tell why an attempt ended."""
        return logs.explain(code=code, signal=signal, log_tail=log_tail, known=self.lines)

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """Read what an OpenAI-compatible server tells about itself."""
        return InForce(model_names=model_names(answers), context_tokens=model_context(answers))

    def effective_context(self, block: EngineBlock, model: Model | None) -> int:
        """Tokens of one request: what was asked, else what the model was made for."""
        return block.context_tokens or (model.context_tokens if model else 0)

    def parser_flags(self) -> JsonObject:
        """The settings that turn on parsing."""
        return dict(self.flags)
