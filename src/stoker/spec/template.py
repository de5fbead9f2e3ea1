"""Opaque engines: containers as a pod template describes them, in the shape that Modelplane's manifests have."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import DeviceRequest, Name, Spec, Text


class KeyRef(Spec):
    """One entry of a secret or a config map."""

    name: Text
    key: Text
    optional: bool = False


class FieldRef(Spec):
    """A field of the pod itself."""

    field_path: Text
    api_version: str = ""


class ValueFrom(Spec):
    """Where a variable's value is read from."""

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None

    @model_validator(mode="after")
    def _one(self) -> "ValueFrom":
        if sum(ref is not None for ref in (self.secret_key_ref, self.config_map_key_ref, self.field_ref)) != 1:
            raise ValueError("give exactly one of secretKeyRef, configMapKeyRef, fieldRef")
        return self


class Variable(Spec):
    """One environment variable."""

    name: Text
    value: str | None = None
    value_from: ValueFrom | None = None

    @model_validator(mode="after")
    def _one(self) -> "Variable":
        if self.value is not None and self.value_from is not None:
            raise ValueError("give value or valueFrom, not both")
        return self


class Container(Spec):
    """The engine's container."""

    name: Literal["engine"]
    image: Text
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()


class PullSecret(Spec):
    """A secret for pulling the image."""

    name: Text


class PodSpec(Spec):
    """The part of a pod that an engine may set."""

    containers: Annotated[tuple[Container, ...], Field(min_length=1, max_length=1)]
    image_pull_secrets: tuple[PullSecret, ...] = ()


class Labels(Spec):
    """Labels and annotations of what is composed."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _not_ours(self) -> "Labels":
        for key in (*self.labels, *self.annotations):
            if key.startswith(("modelplane.ai/", "stoker.dev/")):
                raise ValueError(f"'{key}' is written by the platform; choose a key of your own")
        return self


class PodTemplate(Spec):
    """A pod of an engine."""

    metadata: Labels = Labels()
    spec: PodSpec


class NodeSelector(Spec):
    """Which devices a node must have free."""

    devices: Annotated[tuple[DeviceRequest, ...], Field(min_length=1, max_length=16)]


class Workers(Spec):
    """How many further nodes join the leader."""

    nodes: Annotated[int, Strict(), Field(ge=1, le=63)]


class Member(Spec):
    """One sort of process of an engine."""

    role: Literal["Standalone", "Leader", "Worker"] = "Standalone"
    node_selector: NodeSelector | None = None
    worker: Workers | None = None
    template: PodTemplate

    @model_validator(mode="after")
    def _workers_counted(self) -> "Member":
        if (self.role == "Worker") != (self.worker is not None):
            raise ValueError("role Worker and the block 'worker' go together: give both or neither")
        return self


class TemplateEngine(Spec):
    """One engine: a standalone process, or a leader with workers."""

    name: Name
    copies: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    phase: Literal["Prefill", "Decode"] | None = None
    members: Annotated[tuple[Member, ...], Field(min_length=1, max_length=2)]

    @model_validator(mode="after")
    def _roles(self) -> "TemplateEngine":
        if sorted(m.role for m in self.members) not in (["Standalone"], ["Leader", "Worker"]):
            raise ValueError("an engine is one Standalone member, or one Leader and one Worker")
        if all(m.node_selector is None for m in self.members):
            raise ValueError("at least one member needs a nodeSelector")
        return self


class TemplateSpec(Spec):
    """The engines of each replica."""

    engines: Annotated[tuple[TemplateEngine, ...], Field(min_length=1, max_length=8)]


class Template(Spec):
    """Labels for what is composed, and opaque engines."""

    metadata: Labels = Labels()
    spec: TemplateSpec | None = None
