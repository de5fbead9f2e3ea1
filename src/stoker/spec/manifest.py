"""Manifests as people write them: YAML or JSON in, checked documents out, or every fault of the whole set.

1. Every document of every file is read; one wrong document refuses the set, with all faults of all documents.
2. A fault names file, line, field and, where there is one, the nearest right name.
3. ``modelplane.ai/v1alpha1`` documents are converted first; what that lost is listed in ``ignored``.
4. A ``List`` stands for the documents in it.
5. Fields that nothing acts on yet are listed in ``deferred``; the controller says so in a condition.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from stoker.base.errors import Fault, Invalid, nearest
from stoker.base.json import Json, JsonObject
from stoker.spec import modelplane
from stoker.spec.kinds import KINDS, Kind
from stoker.spec.meta import API_VERSION, DEFAULT_NAMESPACE, FROM_MANIFEST, Metadata, Spec
from stoker.spec.reading.faults import Path, faults_of, show
from stoker.spec.reading.source import Source, read

_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
# What an API server writes; it comes back when somebody edits the output of `get -o yaml`.
_SERVER_WRITTEN: Final = frozenset(
    {
        "uid",
        "generation",
        "createdAt",
        "deletedAt",
        "creationTimestamp",
        "deletionTimestamp",
        "managedFields",
        "ownerReferences",
        "finalizers",
        "selfLink",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One resource as somebody declared it."""

    kind: str
    metadata: Metadata
    spec: Spec
    file: str = ""
    line: int = 0
    ignored: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    generation: int = 0  # of the resource that was read and edited; 0: written afresh
    lines: Mapping[Path, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace; empty for cluster-wide kinds."""
        return (self.metadata.namespace or DEFAULT_NAMESPACE) if KINDS[self.kind].namespaced else ""

    def fault(self, message: str, *, path: Path, hint: str = "") -> Fault:
        """Say that a field of this document is wrong."""
        return _Place(self.file, Source(None, dict(self.lines))).fault(message, path=path, hint=hint)


@dataclass(frozen=True, slots=True)
class _Place:
    """One document's text, and where the paths of its converted form came from."""

    file: str
    source: Source
    moved: Mapping[Path, Path] = field(default_factory=dict)

    def origin(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            if path[:length] in self.moved:
                return (*self.moved[path[:length]], *path[length:])
        return path

    def line(self, path: Path) -> int:
        return self.source.line(self.origin(path))

    def fault(self, message: str, *, path: Path, hint: str = "") -> Fault:
        return Fault(message=message, file=self.file, line=self.line(path), field=show(path), hint=hint)


def load(text: str, *, file: str = "") -> tuple[Document, ...]:
    """Read every document of one text; raises Invalid with every fault."""
    return load_set([(file, text)])


def load_set(texts: Sequence[tuple[str, str]]) -> tuple[Document, ...]:
    """Read the documents of several files, given as (file, text); raises Invalid with every fault of all of them."""
    documents: list[Document] = []
    faults: list[Fault] = []
    for file, text in texts:
        sources, malformed = read(text, file=file)
        faults += malformed
        for source in (member for whole in sources for member in _members(whole)):
            document, wrong = _document(source, file)
            faults += wrong
            documents += [document] if document else []
    faults += _twice(documents)
    if faults:
        raise Invalid(*faults)
    return tuple(documents)


def _members(source: Source) -> Iterator[Source]:
    """Take a list apart, as ``get -o yaml`` prints one."""
    value = source.value
    items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else None
    if not isinstance(items, list):
        yield source
        return
    for index, item in enumerate(items):
        here = ("items", index)
        yield Source(item, {path[2:]: line for path, line in source.lines.items() if path[:2] == here})


def _twice(documents: Sequence[Document]) -> list[Fault]:
    seen: dict[tuple[str, str, str], Document] = {}
    faults: list[Fault] = []
    for document in documents:
        key = (document.kind, document.namespace, document.name)
        if key in seen:
            first = seen[key]
            message = f"{document.kind} '{document.name}' is declared twice (first at {first.file}:{first.line})"
            faults.append(document.fault(message, path=("metadata", "name")))
        seen.setdefault(key, document)
    return faults


def _document(source: Source, file: str) -> tuple[Document | None, Sequence[Fault]]:
    place = _Place(file, source)
    raw = source.value
    if not isinstance(raw, dict):
        return None, [place.fault("a document must be a mapping with apiVersion, kind, metadata and spec", path=())]
    kind, wrong = _kind(raw, place)
    if kind is None:
        return None, wrong
    faults = [
        place.fault("there is no such field", path=(key,), hint=nearest(key, _TOP)) for key in raw if key not in _TOP
    ]
    spec, ignored = raw.get("spec", {}), tuple[str, ...]()
    if raw["apiVersion"] == modelplane.API_VERSION and isinstance(spec, dict):
        converted = modelplane.convert(kind.name, spec)
        faults += [place.fault(text, path=path) for path, text in converted.faults]
        spec, ignored = converted.spec, converted.ignored
        place = _Place(file, source, converted.moved)
        if converted.faults:
            return None, faults
    metadata, wrong = _metadata(raw.get("metadata"), kind, place)
    checked, wrong_spec = _spec(spec, kind, place)
    faults += [*wrong, *wrong_spec]
    if metadata is None or checked is None or faults:
        return None, faults
    document = Document(
        kind=kind.name,
        metadata=metadata,
        spec=checked,
        file=file,
        line=source.line(()),
        ignored=ignored,
        deferred=_deferred(kind, spec if isinstance(spec, dict) else {}),
        generation=_generation(raw.get("metadata")),
        lines={**source.lines, **{new: source.line(old) for new, old in place.moved.items()}},
    )
    return document, []


def _kind(raw: JsonObject, place: _Place) -> tuple[Kind | None, Sequence[Fault]]:
    """Find out what the document declares, or say why it is none of ours."""
    version, name = raw.get("apiVersion"), raw.get("kind")
    faults = [place.fault("is required", path=(key,)) for key in ("apiVersion", "kind") if not raw.get(key)]
    if not isinstance(version, str) or not isinstance(name, str):
        return None, faults or [place.fault("apiVersion and kind must be texts", path=("apiVersion",))]
    if version not in (API_VERSION, modelplane.API_VERSION):
        faults.append(_foreign(version, name, place))
    elif version == modelplane.API_VERSION and name not in modelplane.KINDS:
        hint = nearest(name, modelplane.KINDS)
        faults.append(place.fault(modelplane.why_refused(name), path=("kind",), hint=hint))
    elif name not in KINDS:
        hint = nearest(name, list(KINDS)) or f"kinds: {', '.join(k for k in KINDS if not KINDS[k].composed)}"
        faults.append(place.fault(f"there is no kind '{name}'", path=("kind",), hint=hint))
    elif KINDS[name].composed:
        owner = "ModelDeployment" if name == "ModelReplica" else "ModelService"
        faults.append(place.fault(f"{name} is composed by the platform; declare a {owner}", path=("kind",)))
    return (None if faults else KINDS[name]), faults


def _foreign(version: str, name: str, place: _Place) -> Fault:
    hint = nearest(version, [API_VERSION, modelplane.API_VERSION])
    if hint:
        return place.fault(f"there is no apiVersion '{version}'", path=("apiVersion",), hint=hint)
    ours = f"Stoker reads {API_VERSION} and {modelplane.API_VERSION}"
    return place.fault(f"{name} ({version}) is a foreign kind; {ours}", path=("apiVersion",))


def _metadata(raw: Json, kind: Kind, place: _Place) -> tuple[Metadata | None, Sequence[Fault]]:
    if not isinstance(raw, dict):
        return None, [place.fault("is required, with a name", path=("metadata",))]
    own = {key: value for key, value in raw.items() if key not in _SERVER_WRITTEN}
    try:
        metadata = Metadata.model_validate(own, by_alias=True, by_name=False)
    except ValidationError as error:
        return None, faults_of(error, Metadata, prefix=("metadata",), file=place.file, where=place.line)
    if metadata.namespace and not kind.namespaced:
        message = f"{kind.name} is cluster-wide and has no namespace"
        return None, [place.fault(message, path=("metadata", "namespace"), hint="remove this line")]
    return metadata, ()


def _generation(metadata: Json) -> int:
    told = metadata.get("generation") if isinstance(metadata, dict) else None
    return told if isinstance(told, int) else 0


def _spec(raw: Json, kind: Kind, place: _Place) -> tuple[Spec | None, Sequence[Fault]]:
    if not isinstance(raw, dict):
        return None, [place.fault("must be a mapping", path=("spec",))]
    try:
        checked = kind.spec.model_validate(raw, context=FROM_MANIFEST, by_alias=True, by_name=False)
    except ValidationError as error:
        return None, faults_of(error, kind.spec, prefix=("spec",), file=place.file, where=place.line)
    return checked, ()


def _deferred(kind: Kind, spec: JsonObject) -> tuple[str, ...]:
    return tuple(path for path in kind.later if _is_given({"spec": spec}, path.split(".")))


def _is_given(value: Json, steps: Sequence[str]) -> bool:
    if not steps:
        return value not in (None, {}, [])
    if not isinstance(value, dict):
        return False
    inner = value.get(steps[0].removesuffix("[]"))
    if steps[0].endswith("[]"):
        return isinstance(inner, list) and any(_is_given(item, steps[1:]) for item in inner)
    return _is_given(inner, steps[1:])
