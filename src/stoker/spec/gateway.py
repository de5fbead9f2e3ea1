"""Where clients come in: ports, ways to prove who one is, limits, and which services are exposed at all."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import Count, Dialect, Natural, Seconds, Selector, Spec, Text


class Tls(Spec):
    """Certificate and key, as files that only their owner reads."""

    cert_file: Text
    key_file: Text


class Listener(Spec):
    """One port. Without TLS it is bound to loopback only."""

    port: Annotated[int, Strict(), Field(ge=0, le=65535)]
    tls: Tls | None = None


class Auth(Spec):
    """How callers prove who they are. There is no open gateway."""

    methods: Annotated[tuple[Literal["APIKey", "JWT"], ...], Field(min_length=1)] = ("APIKey",)


class Timeouts(Spec):
    """Limits on waiting. No total limit on a stream unless one is asked for."""

    connect: Seconds | None = None
    first_byte: Seconds | None = None
    idle: Seconds | None = None
    max_generation: Seconds | None = None
    request: Seconds | None = None


class GatewayLimits(Spec):
    """Limits over all callers. 0 concurrent: no limit."""

    body_bytes: Count | None = None
    max_output_tokens: Count | None = None
    max_concurrent: Natural | None = None


class UsageSink(Spec):
    """Where usage records also go."""

    type: Literal["File", "HTTP"]
    path: str = ""
    url: str = ""

    @model_validator(mode="after")
    def _has_target(self) -> "UsageSink":
        if bool(self.path) != (self.type == "File") or bool(self.url) != (self.type == "HTTP"):
            raise ValueError("type File takes a path, type HTTP takes a url")
        return self


class InferenceGatewaySpec(Spec):
    """One gateway. An empty ``serviceSelector`` exposes no service."""

    listeners: Annotated[tuple[Listener, ...], Field(max_length=8)] = ()
    auth: Auth = Auth()
    service_selector: Selector = Selector()
    timeouts: Timeouts = Timeouts()
    keep_alive: Seconds | None = None
    commit_after: Seconds | None = None
    limits: GatewayLimits = GatewayLimits()
    dialects: tuple[Dialect, ...] = ("chat", "completions", "embeddings")
    usage_sink: UsageSink | None = None
