"""Does every name in a set of documents stand for something that is there?

Within the set or among what is stored already. A selector that matches nothing is no fault here: what it selects may
come later, and a condition says so until then.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from stoker.base.errors import Fault, nearest
from stoker.spec.caller import CallerSpec
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.hardware import InferenceClusterSpec
from stoker.spec.manifest import Document
from stoker.spec.meta import Ref
from stoker.spec.reading.faults import Path
from stoker.spec.service import ModelServiceSpec


def check(documents: Sequence[Document], known: Mapping[tuple[str, str], AbstractSet[str]]) -> tuple[Fault, ...]:
    """Find the dangling references. ``known``: names in the store by (kind, namespace); "" for cluster-wide kinds."""
    names: dict[tuple[str, str], set[str]] = {key: set(found) for key, found in known.items()}
    for document in documents:
        names.setdefault((document.kind, document.namespace), set()).add(document.name)
    faults: list[Fault] = []
    for document in documents:
        for path, kind, namespace, name in _references(document):
            there = names.get((kind, namespace), set())
            if name not in there:
                where = f" in namespace '{namespace}'" if namespace else ""
                message = f"there is no {kind} '{name}'{where}"
                faults.append(document.fault(message, path=path, hint=nearest(name, sorted(there))))
    return tuple(faults)


def _references(document: Document) -> Iterator[tuple[Path, str, str, str]]:
    """Yield (path, kind, namespace, name) of everything that a document names."""
    spec, namespace = document.spec, document.namespace
    match spec:
        case ModelDeploymentSpec(model_cache_ref=Ref(name=name)):
            yield ("spec", "modelCacheRef", "name"), "ModelCache", namespace, name
        case ModelServiceSpec(use_case_ref=Ref(name=name)):
            yield ("spec", "useCaseRef", "name"), "UseCase", namespace, name
        case InferenceClusterSpec():
            yield from _classes(spec)
        case CallerSpec():
            yield from _services(spec)
        case _:
            return


def _classes(spec: InferenceClusterSpec) -> Iterator[tuple[Path, str, str, str]]:
    for index, pool in enumerate(spec.node_pools):
        yield ("spec", "nodePools", index, "className"), "InferenceClass", "", pool.class_name
    for index, name in enumerate(spec.fallback_classes):
        yield ("spec", "fallbackClasses", index), "InferenceClass", "", name


def _services(spec: CallerSpec) -> Iterator[tuple[Path, str, str, str]]:
    for index, service in enumerate(spec.allow.services):
        space, slash, name = service.partition("/")
        if slash:
            yield ("spec", "allow", "services", index), "ModelService", space, name
    for service in spec.limits.models:
        space, _, name = service.partition("/")
        yield ("spec", "limits", "models", service), "ModelService", space, name
