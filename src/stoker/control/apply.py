"""Take manifests in: all of a set or none of it."""

from dataclasses import dataclass
from difflib import unified_diff
from typing import Final

import msgspec
import yaml

from stoker.base import clock
from stoker.base.errors import Fault, Invalid, NotFound
from stoker.base.json import Json, JsonObject
from stoker.control.advice import sessions
from stoker.control.desk import Desk
from stoker.drivers.store.base import Event, Resource
from stoker.spec import kinds, manifest, references
from stoker.spec.manifest import Document

# What must be taken down in order before the resource itself may go.
FINALIZERS: Final = {"ModelDeployment": ("stoker.dev/replicas",)}
LICENCES: Final = "stoker.dev/accepted-licences"  # one name of a model a line
_LICENSED: Final = ("ModelDeployment", "ModelCache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One text with manifests, and the name that faults give it."""

    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be applied; ``dry_run`` only tells what would change."""

    sources: tuple[Source, ...]
    namespace: str
    dry_run: bool = False
    accept_licences: tuple[str, ...] = ()


async def run(desk: Desk, request: Request, *, actor: str) -> JsonObject:
    """Read, check and apply. Raises Invalid with every fault of every document; then nothing was applied."""
    documents = _read(request)
    faults = list(references.check(documents, await _known(desk)))
    faults += [
        Fault(
            message=f"{d.kind} is composed by the controller",
            file=d.file,
            line=d.line,
            field="kind",
            hint="write what it is composed from",
        )
        for d in documents
        if kinds.find_kind(d.kind).composed
    ]
    if faults:
        raise Invalid(*faults)
    pairs = [(d, *await _merge(desk, d, request)) for d in documents]
    results: list[Json] = [_result(d, before, after) for d, before, after in pairs]
    if not request.dry_run:
        await desk.store.apply([after for _, _, after in pairs], actor=actor)
        for _, before, after in pairs:
            await _tell_acceptance(desk, before, after, actor=actor)
        desk.wake()
    told: list[Json] = [w for d in documents for w in _warnings(d)]
    told += await sessions.advise(desk, [after for _, _, after in pairs], now=clock.now())
    return {"results": results, "warnings": told}


def _read(request: Request) -> list[Document]:
    documents: list[Document] = []
    faults: list[Fault] = []
    for source in request.sources:
        try:
            documents += manifest.load(source.text, file=source.file)
        except Invalid as error:
            faults += error.faults
    seen: dict[tuple[str, str, str], Document] = {}
    for d in documents:
        key = (d.kind, _namespace(d, request), d.metadata.name)
        if key in seen:
            first = seen[key]
            faults.append(
                Fault(
                    message=f"{d.kind}/{d.metadata.name} stands twice",
                    file=d.file,
                    line=d.line,
                    hint=f"first in {first.file}:{first.line}",
                )
            )
        seen[key] = d
    if not documents and not faults:
        faults.append(Fault(message="no manifest in what was given", hint="a manifest begins with apiVersion and kind"))
    if faults:
        raise Invalid(*faults)
    return documents


async def _known(desk: Desk) -> dict[tuple[str, str], set[str]]:
    """Names that exist already, by kind and namespace."""
    known: dict[tuple[str, str], set[str]] = {}
    for kind in kinds.KINDS.values():
        for resource in await desk.store.list(kind.name):
            known.setdefault((kind.name, resource.namespace), set()).add(resource.name)
    return known


async def _merge(desk: Desk, document: Document, request: Request) -> tuple[Resource | None, Resource]:
    """Build the resource to store from the document and what is there already."""
    namespace = _namespace(document, request)
    before: Resource | None
    try:
        before = await desk.store.get(document.kind, namespace, document.metadata.name)
    except NotFound:
        before = None
    spec = kinds.dump_spec(document.spec)
    if document.kind == "Caller" and before is not None and "credentials" not in spec and "credentials" in before.spec:
        # Keys are made by `stoker key create`; a manifest that does not speak of them must not lock everybody out.
        spec["credentials"] = before.spec["credentials"]
    annotations = dict(document.metadata.annotations)
    accepted = _accepted(before) | set(annotations.get(LICENCES, "").splitlines())
    if document.kind in _LICENSED:
        accepted |= set(request.accept_licences)
    if accepted:
        annotations[LICENCES] = "\n".join(sorted(accepted))
    if document.ignored or document.deferred:
        annotations["stoker.dev/deferred"] = "; ".join((*document.ignored, *document.deferred))
    return before, Resource(
        kind=document.kind,
        name=document.metadata.name,
        namespace=namespace,
        resource_version=_version(document, before),
        labels=dict(document.metadata.labels),
        annotations=annotations,
        finalizers=FINALIZERS.get(document.kind, ()),
        spec=spec,
    )


def _version(document: Document, before: Resource | None) -> str:
    """Over which version a document may be written.

    A status changes by itself, and the version with it; while the generation is the one that was read, nobody changed
    the spec in between.
    """
    same = before is not None and document.generation == before.generation
    return "" if same else document.metadata.resource_version


def _accepted(resource: Resource | None) -> set[str]:
    """Names of the models whose licence was accepted for a resource."""
    return set(resource.annotations.get(LICENCES, "").splitlines()) if resource is not None else set()


def _agreed(resource: Resource | None) -> bool:
    """Tell whether the spec itself accepts the licence of its model."""
    if resource is None:
        return False
    model = resource.spec.get("model")
    return resource.spec.get("acceptLicence") is True or (
        isinstance(model, dict) and model.get("acceptLicence") is True
    )


async def _tell_acceptance(desk: Desk, before: Resource | None, after: Resource, *, actor: str) -> None:
    """Keep who accepted which licence, and when: somebody will be asked."""
    names = sorted(_accepted(after) - _accepted(before))
    if _agreed(after) and not _agreed(before):
        model = after.spec.get("model")
        source = model if isinstance(model, dict) else {}
        names.append(str(source.get("name") or source.get("repo") or source.get("path") or after.name))
    for name in dict.fromkeys(names):
        await desk.tell(
            Event(
                at=clock.now(),
                kind=after.kind,
                namespace=after.namespace,
                name=after.name,
                reason="LicenceAccepted",
                message=f"the licence of {'every model' if name == '*' else name} was accepted",
                actor=actor,
            )
        )


def _namespace(document: Document, request: Request) -> str:
    if not kinds.find_kind(document.kind).namespaced:
        return ""
    return document.metadata.namespace or request.namespace


def _change(before: Resource | None, after: Resource) -> str:
    if before is None:
        return "created"
    same = before.spec == after.spec and before.labels == after.labels and before.annotations == after.annotations
    return "unchanged" if same else "configured"


def _result(document: Document, before: Resource | None, after: Resource) -> JsonObject:
    old = _lines(before) if before is not None else []
    diff: list[Json] = [
        line.rstrip("\n") for line in unified_diff(old, _lines(after), "now", "applied", lineterm="", n=2)
    ]
    ignored: list[Json] = list(document.ignored)
    deferred: list[Json] = list(document.deferred)
    return {
        "kind": after.kind,
        "namespace": after.namespace,
        "name": after.name,
        "change": _change(before, after),
        "diff": diff,
        "ignored": ignored,
        "deferred": deferred,
    }


def _lines(resource: Resource) -> list[str]:
    shown = {"labels": resource.labels, "annotations": resource.annotations, "spec": resource.spec}
    text: str = yaml.safe_dump(msgspec.to_builtins(shown), sort_keys=True, allow_unicode=True)
    return text.splitlines()


def _warnings(document: Document) -> list[str]:
    """Name what is allowed but will surprise."""
    spec = document.spec
    told = []
    timeouts = getattr(spec, "timeouts", None)
    if timeouts is not None and timeouts.request is not None:
        told.append(
            f"{document.kind}/{document.metadata.name}: timeouts.request cuts answers after {timeouts.request:.0f} s, "
            "also one that is still being written; timeouts.idle catches what hangs"
        )
    if document.kind == "InferenceGateway" and not getattr(spec, "service_selector").match_labels:  # noqa: B009
        told.append(f"InferenceGateway/{document.metadata.name}: serviceSelector is empty, so it exposes no service")
    return told
