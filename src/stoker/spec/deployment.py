"""Which model runs on which engine, how often, and how a change is rolled out."""

from typing import Annotated, Final, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import (
    Bool,
    Count,
    DeviceRequest,
    Fraction,
    Name,
    Natural,
    Number,
    Ref,
    Seconds,
    Selector,
    Size,
    Spec,
    Text,
    Toleration,
)
from stoker.spec.template import Template


class Speculative(Spec):
    """Guess tokens ahead with a cheap method and let the model check them."""

    method: Literal["ngram", "draft", "eagle", "mtp"]
    model: str = ""  # the draft model; only for draft and eagle
    tokens: Count | None = None


EngineName = Literal["llama.cpp", "vllm", "sglang", "tensorrt-llm", "ollama", "external", "command", "simulated"]
_OURS: Final = ("llama.cpp", "simulated")  # come with Stoker: runtime kind embedded starts them
_MODELLESS: Final = ("external", "simulated", "command", "ollama")  # bring their own model, or have none


class EngineBlock(Spec):
    """What is asked of an engine. None: not asked, the engine decides. An adapter maps each field or refuses it."""

    name: EngineName
    version: str = ""
    memory_fraction: Fraction | None = None
    max_sequences: Count | None = None
    context_tokens: Count | None = None  # per request
    tensor_parallel: Count | None = None
    pipeline_parallel: Count | None = None
    quantization: Text | None = None
    kv_dtype: Text | None = None
    prefix_cache: Bool | None = None
    chunk_tokens: Count | None = None
    speculative: Speculative | None = None
    tool_parser: Text | None = None
    reasoning_parser: Text | None = None
    chat_template: Text | None = None  # path of a template file
    embeddings: Bool | None = None
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)


class ModelSource(Spec):
    """Which model, when no ModelCache holds it: a packaged name, a path on the machine, or a hub repository."""

    name: Text | None = None
    path: Text | None = None
    repo: Text | None = None
    revision: str = ""
    accept_licence: Bool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> "ModelSource":
        if sum(bool(v) for v in (self.name, self.path, self.repo)) != 1:
            raise ValueError("give exactly one of name, path, repo")
        if self.revision and not self.repo:
            raise ValueError("only a repo has a revision")
        return self


class Runtime(Spec):
    """Where the engine's program comes from."""

    kind: Literal["embedded", "python", "command", "container"] = "embedded"
    path: Text | None = None  # of a Python interpreter, or of the engine's program
    image: Text | None = None
    command: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "Runtime":
        needs = {"python": self.path, "container": self.image, "command": self.command or self.path}
        if self.kind in needs and not needs[self.kind]:
            wanted = {"python": "path", "container": "image", "command": "command (or path)"}[self.kind]
            raise ValueError(f"runtime kind {self.kind} needs {wanted}")
        if self.image and self.kind != "container":
            raise ValueError(f"runtime kind {self.kind} takes no image; kind container does")
        if self.command and self.kind != "command":
            raise ValueError(f"runtime kind {self.kind} takes no command; kind command does")
        return self


class Resources(Spec):
    """What one replica may use of a machine."""

    cpu: Annotated[float, Strict(), Field(gt=0)] | None = None  # cores
    memory: Size | None = None
    devices: Annotated[tuple[DeviceRequest, ...], Field(max_length=16)] = ()


class ProbeTimes(Spec):
    """How long a start may take, and one check."""

    startup: Seconds | None = None
    ready: Seconds | None = None
    generate: Seconds | None = None


class RolloutPlan(Spec):
    """How a changed spec replaces what runs. No strategy: Recreate on exclusive devices, else RollingUpdate."""

    strategy: Literal["Recreate", "RollingUpdate"] | None = None
    max_unavailable: Natural | None = None
    max_surge: Natural | None = None
    drain_seconds: Number | None = None
    progress_deadline: Seconds | None = None

    @model_validator(mode="after")
    def _moves(self) -> "RolloutPlan":
        if self.max_unavailable == 0 and self.max_surge == 0:
            raise ValueError("maxUnavailable and maxSurge are both 0: no replica could ever be replaced")
        return self


class LoraAdapter(Spec):
    """A small set of weights over the model, served under its own name."""

    name: Name
    path: Text


class Serving(Spec):
    """Whether one engine does both phases of a request."""

    mode: Literal["Unified", "PrefillDecode"] = "Unified"


class ModelDeploymentSpec(Spec):
    """Replicas of one model on one engine."""

    replicas: Annotated[int, Strict(), Field(ge=0, le=10)] = 1
    model: ModelSource | None = None
    model_cache_ref: Ref | None = None
    runtime: Runtime = Runtime()
    engine: EngineBlock | None = None
    resources: Resources = Resources()
    probes: ProbeTimes = ProbeTimes()
    rollout: RolloutPlan = RolloutPlan()
    lora_adapters: tuple[LoraAdapter, ...] = ()
    cluster_selector: Selector = Selector()
    tolerations: tuple[Toleration, ...] = ()
    serving: Serving = Serving()
    template: Template | None = None

    @property
    def block(self) -> EngineBlock:
        """The typed block; an opaque deployment has the block of the engine ``command``."""
        return self.engine or EngineBlock(name="command")

    @property
    def opaque(self) -> bool:
        """Whether the platform only probes and meters what runs."""
        return self.engine is None

    @model_validator(mode="after")
    def _one_engine(self) -> "ModelDeploymentSpec":
        templated = self.template is not None and self.template.spec is not None
        commanded = self.runtime.kind == "command" and bool(self.runtime.command)
        if templated and (self.engine is not None or commanded):
            raise ValueError("give either engine (or runtime.command) or template.spec.engines, not both")
        if not (templated or commanded or self.engine is not None):
            raise ValueError("say what runs: engine, template.spec.engines, or runtime.command with kind command")
        return self

    @model_validator(mode="after")
    def _runs_somewhere(self) -> "ModelDeploymentSpec":
        name = self.engine.name if self.engine is not None else ""
        if self.runtime.kind == "embedded" and name not in ("", "external", *_OURS):
            kinds = "kind command with its path" if name in ("ollama", "command") else "kind python with its path"
            raise ValueError(f"engine {name} does not come with Stoker; say in runtime where it is: {kinds}")
        return self

    @model_validator(mode="after")
    def _one_model(self) -> "ModelDeploymentSpec":
        if self.model is not None and self.model_cache_ref is not None:
            raise ValueError("give model or modelCacheRef, not both")
        fetches_itself = self.engine is None or self.engine.name in _MODELLESS
        if not fetches_itself and self.model is None and self.model_cache_ref is None:
            raise ValueError("say which model: model or modelCacheRef")
        return self

    @model_validator(mode="after")
    def _phases(self) -> "ModelDeploymentSpec":
        engines = self.template.spec.engines if self.template and self.template.spec else ()
        phases = sorted(e.phase or "" for e in engines)
        if self.serving.mode == "PrefillDecode" and phases != ["Decode", "Prefill"]:
            raise ValueError("mode PrefillDecode needs exactly two template engines, one of each phase")
        if self.serving.mode == "Unified" and any(phases):
            raise ValueError("a phase is only for serving.mode PrefillDecode")
        return self
