"""The interface of an engine adapter. To add an engine, write one file and one recorded metrics page.

An adapter is knowledge only: it turns a description into a command line, and what an engine printed or answered
into facts. It starts nothing and reads nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from stoker.base.json import Json, JsonObject
from stoker.spec.deployment import EngineBlock

# The host writes the secret into a file of the attempt and puts its path where these words stand.
SECRET_FILE: Final = "{secret_file}"  # noqa: S105 - a place, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model files as they lie on the machine's disk, read from their headers."""

    path: str  # a .gguf file or a checkpoint directory
    format: str  # gguf | safetensors
    architecture: str = ""
    context_tokens: int = 0  # what the model was made for; 0: unknown
    chat_template: str = ""
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Everything that a command line depends on."""

    block: EngineBlock
    model: Model | None  # None: the engine fetches it itself (external, opaque commands)
    served_name: str
    port: int
    secret: str  # the bearer token of this attempt; goes into env or a file, never argv
    executable: tuple[str, ...]  # from the runtime: how the engine is started
    secret_file: str = SECRET_FILE
    lora: Mapping[str, str] = field(default_factory=dict)  # adapter name -> path
    devices: tuple[str, ...] = ()
    cores: int = 1
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line ready to run."""

    argv: tuple[str, ...]
    env: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Where an engine says that it is alive, what it has loaded and how it is doing. Empty: it has no such path."""

    health: str = "/health"
    models: str = "/v1/models"
    metrics: str = "/metrics"
    in_force: tuple[str, ...] = ()  # paths whose JSON answers ``in_force`` reads
    startup: float = 600.0  # seconds after which a start has failed
    generate: float = 120.0  # seconds for one real completion
    stalled: float = 120.0  # seconds without a token, while asked, after which it makes no progress any more


class Reason(StrEnum):
    """Why an engine did not start or died. The words are condition reasons: stable."""

    OUT_OF_MEMORY = "OutOfMemory"
    UNSUPPORTED_ARCHITECTURE = "UnsupportedArchitecture"
    BAD_FLAG = "BadFlag"
    DRIVER_MISMATCH = "DriverMismatch"
    PORT_IN_USE = "PortInUse"
    MODEL_NOT_FOUND = "ModelFilesNotFound"
    CPU_TOO_OLD = "CpuLacksInstructions"
    KILLED = "Killed"
    CRASHED = "EngineCrashed"
    EXITED = "EngineExited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Why it ended, in words for a person, and what to do next."""

    reason: Reason
    message: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a start-up log told. None: it did not say."""

    ready: bool = False
    weight_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    version: str | None = None
    loading_fraction: float | None = None
    trouble: Explained | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What the engine runs with, read back from itself. None: it does not tell."""

    context_tokens: int | None = None  # per request
    max_sequences: int | None = None
    prefix_cache: bool | None = None
    kv_cache_tokens: int | None = None
    model_names: tuple[str, ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that is not in force as it was asked."""

    field: str
    asked: str
    in_force: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What the engine can do, for routing and for ``stoker engines``."""

    dialects: tuple[str, ...] = ("chat", "completions")
    tools: bool = True
    reasoning: bool = True
    embeddings: bool = False
    lora: bool = False
    prefix_cache: bool = True
    cancels_unstreamed: bool = True  # False: the gateway must stream upstream and aggregate
    bounded_queue: bool = True  # False: the gateway must cap
    formats: tuple[str, ...] = ()  # of model files: gguf, safetensors; empty: it fetches its models itself
    keyed: bool = True  # False: the engine knows no key, so a process on this machine can call it directly
    purpose: str = ""  # one sentence: what this engine is for
    proven: tuple[str, ...] = ()  # versions that were run against real builds
    unproven: str = ""  # why some or all versions are known from documentation only


class Engine(Protocol):
    """One inference engine. Every method is pure; ``launch`` raises Invalid naming the field it cannot map."""

    @property
    def name(self) -> str:
        """The name in ``spec.engine.name``."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    @property
    def probes(self) -> Probes:
        """Where to ask it."""

    def launch(self, ask: Ask) -> Launch:
        """Write the command line; raises Invalid for a field of the block that this engine does not have."""

    def metrics(self, page: str) -> Mapping[str, float]:
        """Read a metrics page into fleet names (``requests_running`` …); a series that is absent is absent here too."""

    def expected_metrics(self) -> Sequence[str]:
        """The fleet names that this engine should expose; a missing one is a condition."""

    def read_log(self, lines: Sequence[str]) -> LogFacts:
        """Read start-up facts from log lines."""

    def explain(self, *, code: int | None, signal: int | None, log_tail: Sequence[str]) -> Explained:
        """Tell why an attempt ended."""

    def in_force(self, answers: Mapping[str, Json]) -> InForce:
        """Read the settings in force from the JSON answers of ``probes.in_force`` (by path)."""

    def effective_context(self, block: EngineBlock, model: Model | None) -> int:
        """Tokens that one request may use, as it was asked (llama.cpp divides by its slots); 0: unknown."""

    def parser_flags(self) -> JsonObject:
        """The setting that turns on tool and reasoning parsing, named when a probe finds raw markup."""
