"""What a model is needed for, and the bar that it must clear, written before anything is tested.

A preset gives every field that the manifest leaves out; what the manifest says wins.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, Strict, model_validator

from stoker.base.json import JsonObject
from stoker.spec.meta import Bool, Count, Dialect, Fraction, Number, Spec, Text


class Bar(Spec):
    """What good means, as a user feels it. Each figure holds for nine of ten requests where it is a p90."""

    visible_ttft_p90_seconds: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
    tokens_per_second_per_user: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
    error_rate: Annotated[float, Strict(), Field(ge=0, le=1)]
    eval_floor: Fraction | None = None


class UseCaseSpec(Spec):
    """A sort of work."""

    preset: Literal["coding-agent", "chat", "batch"] | None = None
    context_tokens: Count | None = None
    dialects: tuple[Dialect, ...] | None = None
    tools: Bool | None = None
    session_hours: Number | None = None
    mode: Literal["Interactive", "Batch"] | None = None
    profile: Text | None = None  # a traffic preset, or a trace file
    bar: Bar | None = None

    @model_validator(mode="after")
    def _complete(self) -> "UseCaseSpec":
        if self.preset is None:
            missing = [
                name
                for name, value in (("contextTokens", self.context_tokens), ("mode", self.mode), ("bar", self.bar))
                if value is None
            ]
            if missing:
                raise ValueError(f"without a preset, {', '.join(missing)} must be given; presets: {', '.join(PRESETS)}")
        return self

    def resolved(self) -> "UseCaseSpec":
        """Fill in what the manifest left to its preset; without one, the careful choices of an ordinary chat."""
        base = PRESETS[self.preset or "chat"]
        own = self.model_dump(exclude_none=True)
        return UseCaseSpec.model_validate({**base, **own})


# The bars are starting points that a team changes before it tests: a person waits for the first word of a chat,
# an agent's user for a whole turn, and nobody watches a batch.
PRESETS: Final[dict[str, JsonObject]] = {
    "coding-agent": {
        "context_tokens": 131072,
        "dialects": ["chat", "responses", "messages"],
        "tools": True,
        "session_hours": 2.0,
        "mode": "Interactive",
        "profile": "agent",
        "bar": {"visible_ttft_p90_seconds": 5.0, "tokens_per_second_per_user": 30.0, "error_rate": 0.01},
    },
    "chat": {
        "context_tokens": 8192,
        "dialects": ["chat"],
        "tools": False,
        "session_hours": 0.5,
        "mode": "Interactive",
        "profile": "chat",
        "bar": {"visible_ttft_p90_seconds": 2.0, "tokens_per_second_per_user": 15.0, "error_rate": 0.01},
    },
    "batch": {
        "context_tokens": 16384,
        "dialects": ["chat", "completions"],
        "tools": False,
        "session_hours": 0.0,
        "mode": "Batch",
        "profile": "rag-batch",
        "bar": {"visible_ttft_p90_seconds": 60.0, "tokens_per_second_per_user": 5.0, "error_rate": 0.02},
    },
}
