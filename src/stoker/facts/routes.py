"""Routes and callers: what the controller tells the gateways.

Two files, each replaced atomically, mode 0600, each with a generation and a checksum over its payload.
A reader that finds a bad file keeps the last good one and says so.
"""

import hashlib
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from stoker.facts.door import Door

SCHEMA_VERSION: Final = 1


class State(StrEnum):
    """What a gateway may do with an endpoint."""

    PROBE = "probe"  # only requests that carry the controller's probe header for this incarnation
    SERVE = "serve"
    DRAIN = "drain"  # running requests finish, no new ones


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits in seconds; None means none. There is no total limit on a stream."""

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 120.0
    max_generation: float | None = None
    request: float | None = None  # a total limit that a manifest asked for; warned about


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an endpoint's owner asks, in US dollars per million tokens."""

    input_usd: float = 0.0
    cached_usd: float | None = None  # None: as any other input
    output_usd: float = 0.0

    def of(self, *, prompt: int, cached: int, output: int) -> float:
        """Price one request by its token counts; ``cached`` ones are among the prompt's."""
        cheaper = self.input_usd if self.cached_usd is None else self.cached_usd
        return ((prompt - cached) * self.input_usd + cached * cheaper + output * self.output_usd) / 1e6


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One engine that answers for a service, local or outside."""

    name: str  # unique over the snapshot
    incarnation: str  # replica uid and attempt: changes when the process does
    state: State
    origin: str  # http://127.0.0.1:41234, without a path
    prefix: str = "/v1"
    upstream_model: str = ""  # the name that the engine knows; empty: as the client wrote it
    credential_file: str = ""  # holds the bearer token for the engine (0600); read by the gateway, never copied here
    engine: str = ""  # llama.cpp, vllm, …: chooses quirks
    dialects: tuple[str, ...] = ("chat", "completions")
    slots: int = 0  # requests at once that the engine runs; 0: unknown, no cap
    queue: int = 0  # how many more may wait at the gateway
    context_tokens: int = 0  # per request; 0: unknown
    stream_upstream: bool = True  # always stream and aggregate: the engine cannot cancel a non-streamed request
    models: tuple[str, ...] = ()  # LoRA adapters and other names that this engine also serves
    embeddings: bool = False
    price: Price | None = None
    key_header: bool = False  # the credential goes into x-api-key, as the Anthropic API wants it
    refresh: float = 0.0  # seconds after which the credential's file is read again; 0: never


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A weighted group of endpoints inside a service; a lower priority number goes first."""

    endpoints: tuple[str, ...]
    weight: int = 1
    priority: int = 0


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """Endpoints that get a copy of a share of the requests; what they answer is dropped."""

    endpoints: tuple[str, ...]
    percent: float


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What may be used: by a caller, of a model, or of a model by a caller. 0 means no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    tokens_per_day: int = 0
    concurrent: int = 0  # requests under way, whether an engine works on them or they wait
    max_output_tokens: int = 0


class Service(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One ModelService as a gateway sees it."""

    name: str  # namespace/name
    models: tuple[str, ...]  # every name that selects it: namespace/name, name where unambiguous, aliases
    targets: tuple[Target, ...]
    timeouts: Timeouts = Timeouts()
    max_output_tokens: int = 4096  # the cap on every call that has none, and the most that one may ask
    policy: str = "PrefixCache"  # RoundRobin | LeastLoad | PrefixCache
    interactive: bool = True
    session_header: str = ""  # in lower case; empty: those that known clients send
    normalise: bool = True  # take the volatile parts of a prompt out of the routing key
    strip: tuple[str, ...] = ()  # the rules by which they are taken out of the prompt itself
    mirror: Mirror | None = None
    adapters: dict[str, str] = {}  # names of models that are LoRA adapters, and what engines call them
    duplicates: str = "Join"  # Join | Cancel | Allow: what becomes of a turn that an agent asks for again
    limits: Limits = Limits()  # over all callers
    max_queued: int | None = None  # how many may wait on one machine; None: as its endpoints allow


class SharedLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The store by which gateways of several machines keep one set of limits."""

    url: str  # redis:// or rediss://, without a password
    share: float  # of each limit, that a machine enforces by itself while the store is gone
    credential_file: str = ""  # its password, or user:password
    ca_file: str = ""
    prefix: str = "stoker"
    timeout: float = 0.1  # seconds that a request waits for it at most


class Routes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a gateway needs to know about models and engines."""

    generation: int
    schema_version: int = SCHEMA_VERSION
    services: tuple[Service, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    dialects: tuple[str, ...] = ("chat", "completions", "embeddings", "responses", "messages", "rerank")
    body_bytes: int = 64 << 20
    max_concurrent: int = 0  # requests in flight over the gateway; 0: no limit
    commit_after: float = 2.0
    keep_alive: float = 15.0
    drain: float = 30.0
    probe_key_file: str = ""  # HMAC key for the controller's probe header
    door: Door = Door()
    shared_limits: SharedLimits | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One credential of a caller. Only its hash: the key itself is shown once and never stored."""

    id: str
    sha256: str  # hex
    not_before: float = 0.0
    expires_at: float | None = None
    revoked: bool = False


class Subject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name by which an issuer of tokens knows a caller. ``issuer`` empty: the one that the gateway believes."""

    id: str
    subject: str
    issuer: str = ""
    not_before: float = 0.0
    expires_at: float | None = None
    revoked: bool = False


class Caller(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One person, agent or program that may ask."""

    name: str
    keys: tuple[Key, ...] = ()
    subjects: tuple[Subject, ...] = ()
    services: tuple[str, ...] = ("*",)  # namespace/name of the services that it may use; "*" = all exposed ones
    limits: Limits = Limits()
    models: dict[str, Limits] = {}  # of single services, by their full name, besides those over all
    priority: int = 0
    cut_revoked: bool | None = None  # None: as the gateway has it


class Callers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everybody who may ask. An empty tuple means that nobody may."""

    generation: int
    schema_version: int = SCHEMA_VERSION
    callers: tuple[Caller, ...] = ()


_Snapshot = TypeVar("_Snapshot", Routes, Callers)


class _Sealed(msgspec.Struct, frozen=True):
    """The file: a checksum over the exact payload bytes that follow."""

    checksum: str
    payload: msgspec.Raw


def seal(value: Routes | Callers) -> bytes:
    """Write a snapshot as file bytes with its checksum."""
    payload = msgspec.json.encode(value)
    return msgspec.json.encode(_Sealed(hashlib.sha256(payload).hexdigest(), msgspec.Raw(payload)))


def open_routes(data: bytes) -> Routes:
    """Read a routes file; raises ValueError when it is cut, altered or of an unknown schema version."""
    return _checked(msgspec.json.decode(_unseal(data), type=Routes))


def open_callers(data: bytes) -> Callers:
    """Read a callers file; raises ValueError when it is cut, altered or of an unknown schema version."""
    return _checked(msgspec.json.decode(_unseal(data), type=Callers))


def _unseal(data: bytes) -> bytes:
    sealed = msgspec.json.decode(data, type=_Sealed)  # msgspec.DecodeError is a ValueError
    payload = bytes(sealed.payload)
    if hashlib.sha256(payload).hexdigest() != sealed.checksum:
        raise ValueError("checksum does not match: the file was cut or altered")
    return payload


def _checked(snapshot: _Snapshot) -> _Snapshot:
    if not SCHEMA_VERSION - 1 <= snapshot.schema_version <= SCHEMA_VERSION:
        raise ValueError(f"schema version {snapshot.schema_version} is not readable here (known: {SCHEMA_VERSION})")
    return snapshot
