"""Where clients come in: ports, ways to prove who one is, limits, and which services are exposed at all."""

import ipaddress
import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict, model_validator

from stoker.spec.meta import Bool, Count, Dialect, Fraction, Natural, Seconds, Selector, Size, Spec, Text

_ORIGIN: Final = re.compile(r"^[a-z][a-z0-9+.-]*://(\[[0-9a-f:]+\]|[^/?#\s:]+)(:\d{1,5})?$")
_SHORTEST_REFRESH: Final = 10.0


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write one address or a range, as in 10.0.0.0/8") from error
    return text


def _origin(text: str) -> str:
    if text != "*" and not _ORIGIN.match(text):
        raise ValueError(f"'{text}' is no origin; write scheme://host[:port] without a path, or '*'")
    return text


class Tls(Spec):
    """Certificate and key, as files that only their owner reads; both are read again when they change."""

    cert_file: Text
    key_file: Text


class Listener(Spec):
    """One port. ``trustedProxies`` may say for whom they ask; from everybody else that is not believed."""

    port: Annotated[int, Strict(), Field(ge=0, le=65535)]
    tls: Tls | None = None
    trusted_proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()


class Jwt(Spec):
    """Tokens of one issuer. Its public keys come from ``jwksUri``, fetched in time and kept, or from a file."""

    issuer: Text
    audience: Annotated[tuple[Text, ...], Field(min_length=1)]
    jwks_uri: str = ""
    jwks_file: str = ""
    caller_claim: Text = "sub"
    clock_skew: Annotated[Seconds, Field(le=600)] = 30.0
    algorithms: Annotated[
        tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...],
        Field(min_length=1),
    ] = ("RS256", "ES256")
    refresh: Seconds = 300.0

    @model_validator(mode="after")
    def _keys(self) -> "Jwt":
        if bool(self.jwks_uri) == bool(self.jwks_file):
            raise ValueError("give exactly one of jwksUri, jwksFile")
        if self.jwks_uri:
            parts = urlsplit(self.jwks_uri)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"'{self.jwks_uri}' is no URL of a key set")
            if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
                raise ValueError("keys from another machine must come by https: whoever changes them on the way is in")
        if self.refresh < _SHORTEST_REFRESH:
            raise ValueError(f"refresh is at least {_SHORTEST_REFRESH:.0f}s")
        return self


class Auth(Spec):
    """How callers prove who they are. There is no open gateway."""

    methods: Annotated[tuple[Literal["APIKey", "JWT"], ...], Field(min_length=1)] = ("APIKey",)
    jwt: Jwt | None = None
    renewal: Annotated[str, Field(max_length=500)] = ""
    on_revoke: Literal["Finish", "Cut"] = "Finish"

    @model_validator(mode="after")
    def _complete(self) -> "Auth":
        if ("JWT" in self.methods) != (self.jwt is not None):
            raise ValueError("method JWT and the block jwt go together: give both or neither")
        return self


class Cors(Spec):
    """From which web pages browsers may ask. Without this block, from none. Empty ``headers``: whichever they name."""

    origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], Field(min_length=1)]
    headers: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], ...] = ()
    max_age: Annotated[Seconds, Field(le=86400)] = 600.0
    credentials: Bool = False

    @model_validator(mode="after")
    def _careful(self) -> "Cors":
        if self.credentials and "*" in self.origins:
            raise ValueError(
                "origins '*' with credentials would let every web page ask as its reader; name the origins"
            )
        return self


class AccessLog(Spec):
    """One line of JSON a request, without prompts, secrets and health checks. File: ``logs/access-N.log``, rotated."""

    to: Literal["File", "Stdout"] = "File"
    max_size: Annotated[Size, Field(ge=1 << 16)] = 64 << 20
    keep: Annotated[int, Strict(), Field(ge=1, le=100)] = 5


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


def _store_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.username or parts.password:
        raise ValueError("a password does not belong into a manifest: write it into a file, and name it credentialFile")
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ValueError(f"'{text}' is no address of a store; write redis://host[:port][/number], or rediss:// for TLS")
    if parts.path.strip("/") and not parts.path.strip("/").isdigit():
        raise ValueError(f"'{parts.path}' is no number of a database; write redis://host[:port]/0")
    return text


class SharedLimits(Spec):
    """One set of limits over the gateways of several machines, kept in Redis or Valkey.

    ``share`` is the part of each limit that a machine enforces by itself while the store is gone or slow: 1 divided by
    the number of machines never lets more through than the whole. ``credentialFile`` holds the password, or
    user:password; ``timeout`` is how long a request waits for the store at most.
    """

    url: Annotated[str, AfterValidator(_store_url)]
    share: Fraction
    credential_file: str = ""
    ca_file: str = ""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")] = "stoker"
    timeout: Annotated[Seconds, Field(gt=0, le=2)] = 0.1


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
    shared_limits: SharedLimits | None = None
    dialects: tuple[Dialect, ...] = ("chat", "completions", "embeddings", "responses", "messages", "rerank")
    usage_sink: UsageSink | None = None
    cors: Cors | None = None
    access_log: AccessLog | None = None
    open: tuple[Literal["Health", "Root", "Metrics"], ...] = ("Health", "Root")
