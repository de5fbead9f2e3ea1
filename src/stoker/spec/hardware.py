"""What hardware there is: node shapes (InferenceClass) and clusters of them (InferenceCluster)."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.meta import Count, Name, Natural, Number, SecretRef, Size, Spec, Text


class Attribute(Spec):
    """One property of a device, of exactly one type."""

    string: Annotated[str, Field(max_length=253)] | None = None
    version: Annotated[str, Field(max_length=32)] | None = None
    bool_value: Annotated[bool, Strict()] | None = Field(default=None, alias="bool")
    int_value: Annotated[int, Strict()] | None = Field(default=None, alias="int")

    @model_validator(mode="after")
    def _exactly_one(self) -> "Attribute":
        given = [v for v in (self.string, self.version, self.bool_value, self.int_value) if v is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of string, version, bool, int")
        return self


class Capacity(Spec):
    """How much of something a device has."""

    value: Annotated[str, Field(min_length=1, max_length=32)]


class ClassDevice(Spec):
    """Devices of one sort in a node."""

    name: Name
    claim: Literal["DRA", "Synthetic"] = "DRA"
    driver: Annotated[str, Field(min_length=1, max_length=253)]
    device_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    count: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    attributes: dict[str, Attribute] = Field(default_factory=dict)
    capacity: dict[str, Capacity] = Field(default_factory=dict)


class Interconnect(Spec):
    """How fast devices reach each other."""

    intra_node_gbps: Number | None = None
    inter_node_gbps: Number | None = None


class InferenceClassSpec(Spec):
    """One node shape and the devices that a node of it has."""

    description: str = ""
    devices: Annotated[tuple[ClassDevice, ...], Field(min_length=1, max_length=16)]
    price_per_hour_usd: Number | None = None
    interconnect: Interconnect | None = None
    host_memory: Size | None = None
    cpu_cores: Count | None = None


class Existing(Spec):
    """How to reach a cluster that is there already."""

    secret_ref: SecretRef


class Taint(Spec):
    """A mark on a cluster that only deployments which tolerate it accept."""

    key: Text
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute"]


class NodePool(Spec):
    """Nodes of one class."""

    name: Annotated[Name, Field(max_length=40)]
    class_name: Text
    node_count: Natural = 1
    min_node_count: Natural | None = None
    max_node_count: Count | None = None
    zones: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _ordered(self) -> "NodePool":
        if self.max_node_count is not None and (self.min_node_count or 0) > self.max_node_count:
            raise ValueError(f"minNodeCount {self.min_node_count} exceeds maxNodeCount {self.max_node_count}")
        return self


Source = Literal["Local", "Existing", "GKE", "EKS", "AKS", "Nebius", "Vultr", "Civo", "CoreWeave"]


class InferenceClusterSpec(Spec):
    """One place where engines run. Cloud sources are declared, never provisioned by us."""

    source: Source
    existing: Existing | None = None
    taints: tuple[Taint, ...] = ()
    node_pools: Annotated[tuple[NodePool, ...], Field(max_length=8)] = ()
    fallback_classes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "InferenceClusterSpec":
        if (self.source == "Existing") != (self.existing is not None):
            raise ValueError("source Existing and the block 'existing' go together: give both or neither")
        names = [pool.name for pool in self.node_pools]
        if len(set(names)) < len(names):
            raise ValueError("two node pools have the same name")
        return self
