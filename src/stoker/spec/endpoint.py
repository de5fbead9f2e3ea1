"""An engine or provider that somebody else runs."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stoker.spec.meta import Dialect, Natural, Number, Seconds, SecretRef, Spec, Text


class Api(Spec):
    """What the endpoint speaks, and under which path. Empty ``dialects``: what its schema is known for."""

    schema_name: Literal["OpenAI", "Anthropic"] = Field(default="OpenAI", alias="schema")
    prefix: Annotated[str, Field(pattern=r"^(/[^\s?#]*)?$")] = "/v1"
    dialects: tuple[Dialect, ...] = ()


class Credential(Spec):
    """How the platform proves itself to the endpoint: a secret, or a file that is read again every ``refresh``."""

    method: Literal["APIKey"] = "APIKey"
    secret_ref: SecretRef | None = None
    file: Text | None = None
    refresh: Seconds | None = None

    @model_validator(mode="after")
    def _one(self) -> "Credential":
        if (self.secret_ref is None) == (self.file is None):
            raise ValueError("give exactly one of secretRef, file")
        return self


class Price(Spec):
    """What the provider asks, in US dollars per million tokens."""

    input_per_million_usd: Number = 0.0
    cached_per_million_usd: Number | None = None
    output_per_million_usd: Number = 0.0


class ModelEndpointSpec(Spec):
    """One endpoint outside of the platform."""

    origin: Annotated[str, Field(pattern=r"^https?://[^\s/?#]+/?$")]
    api: Api = Api()
    model: str = ""  # the name that the provider knows; empty: as the client wrote it
    credential: Credential | None = None
    price: Price | None = None
    context_tokens: Natural = 0
    max_concurrent: Natural = 0
