"""Which version is a document of, are all its fields known there, and who converts it?"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from stoker.base.errors import nearest
from stoker.base.json import Json, JsonObject
from stoker.spec.modelplane.converted import Converted
from stoker.spec.modelplane.deployment import model_deployment
from stoker.spec.modelplane.fields import V03, V03_ONLY, V05
from stoker.spec.modelplane.hardware import inference_class, inference_cluster
from stoker.spec.modelplane.serving import inference_gateway, model_cache, model_endpoint, model_service
from stoker.spec.reading.faults import Path, show

API_VERSION: Final = "modelplane.ai/v1alpha1"

_CONVERTERS: Final[Mapping[str, Callable[[JsonObject], Converted]]] = {
    "InferenceClass": inference_class,
    "InferenceCluster": inference_cluster,
    "InferenceGateway": inference_gateway,
    "ModelCache": model_cache,
    "ModelDeployment": model_deployment,
    "ModelEndpoint": model_endpoint,
    "ModelService": model_service,
}
KINDS: Final = tuple(_CONVERTERS)

_COMPOSED: Final = {"ModelReplica": "ModelDeployment", "ModelRoute": "ModelService"}
_LATER: Final = ("MetricMapping", "TelemetryDestination")


def why_refused(kind: str) -> str:
    """Say why a kind of Modelplane's group is not read."""
    if kind in _COMPOSED:
        return f"{kind} is composed from a {_COMPOSED[kind]}, which is what to declare"
    if kind in _LATER:
        return f"{kind} of {API_VERSION} is known, but nothing here acts on it yet"
    return f"there is no kind '{kind}' in {API_VERSION} at v0.3.1 or v0.5"


def convert(kind: str, spec: JsonObject) -> Converted:
    """Turn the spec of a Modelplane document into ours."""
    old, new = V03[kind].split(), V05.get(kind, "").split()
    known = [*old, *new]
    faults = [(("spec", *path), _unknown(path, known)) for path in _strangers(spec, known, ())]
    gone = [name for name in V03_ONLY.get(kind, "").split() if name in spec]
    come = sorted({path.split(".")[0].removesuffix("[]") for path in new} & set(spec) - _tops(old))
    if gone and come:
        message = f"'{gone[0]}' is of Modelplane v0.3 and '{come[0]}' of v0.5: a document is of one version"
        faults.append((("spec", gone[0]), message))
    if faults:
        return Converted(spec=spec, faults=tuple(faults))
    return _CONVERTERS[kind](spec)


def _tops(paths: list[str]) -> set[str]:
    return {path.split(".")[0].removesuffix("[]") for path in paths}


def _unknown(path: Path, known: list[str]) -> str:
    names = [*dict.fromkeys(step.removesuffix("[]") for place in known for step in place.split("."))]
    hint = nearest(str(path[-1]), names)
    return (
        f"Modelplane has no field '{show(path)}' at v0.3.1 or v0.5, the versions that are read here"
        f"{'; ' + hint if hint else ''}"
    )


def _strangers(value: Json, known: list[str], path: Path) -> Iterator[Path]:
    """Find the fields that no known path begins with. A path that ends is a leaf or a free map."""
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        below = [rest for place in known for rest in [_below(place, key)] if rest is not None]
        if not below:
            yield (*path, key)
        elif all(below):
            for step, item in _items(inner):
                yield from _strangers(item, [rest.removeprefix(".") for rest in below], (*path, key, *step))


def _below(place: str, key: str) -> str | None:
    """Give what follows ``key`` in a known path, or None when the path begins otherwise."""
    head, _, rest = place.partition(".")
    return rest if head in (key, f"{key}[]", "{}") else None


def _items(value: Json) -> Iterator[tuple[Path, Json]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield (index,), item
    else:
        yield (), value
