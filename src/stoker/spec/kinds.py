"""Which kinds are there, how are they called, and which of their fields does only later work act on?"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from pydantic import ValidationError

from stoker.base.errors import Fault, Invalid, nearest
from stoker.base.json import JsonObject
from stoker.spec.cache import ModelCacheSpec
from stoker.spec.caller import CallerSpec
from stoker.spec.composed import ModelReplicaSpec, ModelRouteSpec
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.endpoint import ModelEndpointSpec
from stoker.spec.gateway import InferenceGatewaySpec
from stoker.spec.hardware import InferenceClassSpec, InferenceClusterSpec
from stoker.spec.meta import API_VERSION, Metadata, Spec
from stoker.spec.reading.faults import faults_of
from stoker.spec.service import ModelServiceSpec
from stoker.spec.usecase import UseCaseSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of resource. ``later``: fields that are accepted and that nothing acts on yet."""

    name: str
    plural: str
    short: str
    spec: type[Spec]
    namespaced: bool = True
    composed: bool = False
    later: tuple[str, ...] = ()


_ALL: Final = (
    Kind(
        name="InferenceClass",
        plural="inferenceclasses",
        short="icl",
        spec=InferenceClassSpec,
        namespaced=False,
        later=("spec.pricePerHourUsd", "spec.interconnect", "spec.hostMemory", "spec.cpuCores"),
    ),
    Kind(
        name="InferenceCluster",
        plural="inferenceclusters",
        short="ic",
        spec=InferenceClusterSpec,
        namespaced=False,
        later=("spec.existing", "spec.taints", "spec.fallbackClasses"),
    ),
    Kind(
        name="InferenceGateway",
        plural="inferencegateways",
        short="ig",
        spec=InferenceGatewaySpec,
        namespaced=False,
        later=("spec.usageSink",),
    ),
    Kind(
        name="ModelCache",
        plural="modelcaches",
        short="mc",
        spec=ModelCacheSpec,
        later=("spec.clusterSelector", "spec.s3"),
    ),
    Kind(
        name="ModelDeployment",
        plural="modeldeployments",
        short="md",
        spec=ModelDeploymentSpec,
        later=("spec.clusterSelector", "spec.tolerations", "spec.serving.mode"),
    ),
    Kind(
        name="ModelService",
        plural="modelservices",
        short="ms",
        spec=ModelServiceSpec,
    ),
    Kind(
        name="ModelEndpoint",
        plural="modelendpoints",
        short="me",
        spec=ModelEndpointSpec,
    ),
    Kind(
        name="UseCase",
        plural="usecases",
        short="uc",
        spec=UseCaseSpec,
        later=("spec.profile", "spec.bar.evalFloor", "spec.sessionHours"),
    ),
    Kind(name="Caller", plural="callers", short="ca", spec=CallerSpec, namespaced=False, later=("spec.costCentre",)),
    Kind(name="ModelReplica", plural="modelreplicas", short="mr", spec=ModelReplicaSpec, composed=True),
    Kind(name="ModelRoute", plural="modelroutes", short="mrt", spec=ModelRouteSpec, composed=True),
)
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _ALL})


def find_kind(word: str) -> Kind:
    """Find a kind by its name, plural or short name, in any case; raises Invalid with the nearest one."""
    wanted = word.lower()
    for kind in _ALL:
        if wanted in (kind.name.lower(), kind.plural, kind.short):
            return kind
    known = [name for kind in _ALL for name in (kind.name, kind.plural, kind.short)]
    lowered = {name.lower(): name for name in known}
    raise Invalid(
        Fault(
            message=f"there is no kind '{word}'",
            field="kind",
            hint=nearest(word, known) or nearest(wanted, list(lowered)) or f"kinds: {', '.join(KINDS)}",
        )
    )


def parse_spec(kind: str, raw: JsonObject) -> Spec:
    """Read a spec as the store keeps it; raises Invalid naming each field."""
    model = find_kind(kind).spec
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise Invalid(*faults_of(error, model, prefix=("spec",))) from error


def dump_spec(spec: Spec) -> JsonObject:
    """Write a spec as the store keeps it and as ``get -o yaml`` shows it: what was left at its default is left out."""
    raw: JsonObject = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return raw


def schema(kind: str) -> JsonObject:
    """Write the JSON Schema of a whole manifest of this kind."""
    known = find_kind(kind)
    mode: Literal["validation"] = "validation"
    metadata = Metadata.model_json_schema(mode=mode, ref_template="#/$defs/{model}")
    spec = known.spec.model_json_schema(mode=mode, ref_template="#/$defs/{model}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": known.name,
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": known.name},
            "metadata": {k: v for k, v in metadata.items() if k != "$defs"},
            "spec": {k: v for k, v in spec.items() if k != "$defs"},
            "status": {"type": "object", "description": "written by the platform; ignored when applied"},
        },
        "$defs": {**metadata.get("$defs", {}), **spec.get("$defs", {})},
    }
