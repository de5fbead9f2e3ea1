"""What every resource has: a name, labels, conditions; and the base class and units of every spec."""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from stoker.base.errors import Invalid
from stoker.base.units import parse_bytes, parse_seconds

GROUP: Final = "stoker.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
DEFAULT_NAMESPACE: Final = "default"
FROM_MANIFEST: Final = "manifest"  # validation context: a person wrote this, so a bare number needs its unit

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_BINARY: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


class Spec(BaseModel):
    """The base of every spec: frozen, camelCase in manifests, and a field that does not exist is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


def _quantity(parse: Callable[[str], float], example: str) -> Callable[[object, ValidationInfo[str | None]], object]:
    def read(value: object, info: ValidationInfo[str | None]) -> object:
        if isinstance(value, str):
            try:
                return parse(value)
            except Invalid as error:
                raise ValueError(str(error)) from error
            except OverflowError as error:
                raise ValueError(f"'{value[:40]}' is too large") from error
        bare = isinstance(value, int | float) and not isinstance(value, bool)
        if bare and info.context == FROM_MANIFEST:
            raise ValueError(f"{value} has no unit; write it as '{value}{example}'")
        return value

    return read


def _show_seconds(value: float) -> str:
    return f"{Decimal(repr(value)).normalize():f}s"


def _show_size(value: int) -> str:
    for unit, size in _BINARY:
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _is_time(text: str) -> str:
    epoch(text)
    return text


def epoch(text: str) -> float:
    """Read an RFC 3339 time with its zone as epoch seconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"'{text}' is no time; write it as '2026-11-30T12:00:00Z'") from error
    if moment.tzinfo is None:
        raise ValueError(f"'{text}' has no time zone; end it with Z or +01:00")
    return moment.timestamp()


def check_name(text: str) -> str:
    """Give a name back; raises ValueError when no resource can have it."""
    if len(text) > 63 or not _LABEL.match(text):
        raise ValueError(
            f"'{text}' is no valid name: at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
        )
    return text


_SPAN_SCHEMA: Final = {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$", "examples": ["30s", "1h30m"]}
_SIZE_SCHEMA: Final = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*([kKMGTP]i?B?)?$", "examples": ["16Gi", "500M"]}

Int = Annotated[int, Strict()]
_LARGEST: Final = 2**53  # beyond it a JSON number is no longer exact, and the store refuses it
Count = Annotated[int, Strict(), Field(ge=1, le=_LARGEST)]
Natural = Annotated[int, Strict(), Field(ge=0, le=_LARGEST)]
Number = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Strict(), Field(gt=0, le=1)]
Bool = Annotated[bool, Strict()]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(check_name)]
Time = Annotated[str, AfterValidator(_is_time)]
Seconds = Annotated[
    float,
    BeforeValidator(_quantity(parse_seconds, "s")),
    Field(ge=0, allow_inf_nan=False),
    PlainSerializer(_show_seconds),
    WithJsonSchema(_SPAN_SCHEMA),
]
Size = Annotated[
    int,
    BeforeValidator(_quantity(parse_bytes, "Mi")),
    Field(ge=0, le=_LARGEST),
    PlainSerializer(_show_size),
    WithJsonSchema(_SIZE_SCHEMA),
]
Dialect = Literal["chat", "completions", "embeddings", "responses", "messages", "rerank"]


class Metadata(Spec):
    """Which resource this is. ``resource_version``: apply only over this version (from ``get -o yaml``)."""

    name: Name
    namespace: Name | None = None  # None: the default namespace, or none for cluster-wide kinds
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    resource_version: str = ""


class Condition(Spec):
    """One statement about a resource, with what a person would do next."""

    type: Text
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    message: str = ""
    observed_generation: Natural = 0
    last_transition_time: str = ""
    next_action: str = ""


class Selector(Spec):
    """Which resources, by their labels. Empty selects nothing."""

    match_labels: dict[str, str] = Field(default_factory=dict)

    def selects(self, labels: dict[str, str]) -> bool:
        """Tell whether every wanted label is there; an empty selector selects nothing."""
        return bool(self.match_labels) and all(labels.get(k) == v for k, v in self.match_labels.items())


class Ref(Spec):
    """Another resource in the same namespace, by name."""

    name: Name


class SecretRef(Spec):
    """One entry of a secret: the platform keeps it in its key directory, never in a manifest."""

    name: Text
    key: Text = "key"


class Toleration(Spec):
    """Which taint of a cluster is accepted."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute"] | None = None


class Cel(Spec):
    """One CEL expression over a device."""

    cel: Annotated[str, Field(min_length=1, max_length=10240)]


class DeviceRequest(Spec):
    """How many devices, and which."""

    name: Name
    count: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    selectors: Annotated[tuple[Cel, ...], Field(max_length=8)] = ()
