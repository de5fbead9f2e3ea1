"""The result of a conversion, and the small moves of which conversions are made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoker.base.json import Json, JsonObject
from stoker.spec.reading.faults import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Our spec, what was lost on the way, where each moved part came from, and what could not be read."""

    spec: JsonObject
    ignored: tuple[str, ...] = ()
    moved: Mapping[Path, Path] = field(default_factory=dict)
    faults: tuple[tuple[Path, str], ...] = ()


def part(raw: Json, *steps: str) -> Json:
    """Follow keys down; None where there is nothing."""
    for step in steps:
        raw = raw.get(step) if isinstance(raw, dict) else None
    return raw


def items(raw: Json) -> Sequence[Json]:
    """A list, or nothing."""
    return raw if isinstance(raw, list) else ()


def without(raw: JsonObject, *keys: str) -> JsonObject:
    """A mapping without some keys."""
    return {key: value for key, value in raw.items() if key not in keys}
