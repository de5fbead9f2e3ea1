"""What does an owner read about a resource? Conditions, each with its reason and the next action for a person."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.base.json import Json, JsonObject

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One statement about a resource. ``action`` is what a person would do next; empty when nothing is wrong."""

    type: str
    status: str
    reason: str
    message: str = ""
    action: str = ""


def yes(kind: str, reason: str, message: str = "") -> Condition:
    """State that it holds."""
    return Condition(type=kind, status=TRUE, reason=reason, message=message)


def no(kind: str, reason: str, message: str = "", *, action: str = "") -> Condition:
    """State that it does not hold, and what to do."""
    return Condition(type=kind, status=FALSE, reason=reason, message=message, action=action)


def unknown(kind: str, reason: str, message: str = "") -> Condition:
    """State that it cannot be told yet."""
    return Condition(type=kind, status=UNKNOWN, reason=reason, message=message)


def stamp(before: Json, conditions: Iterable[Condition], *, generation: int, at: str) -> list[Json]:
    """Write conditions for a status; one whose status and reason did not change keeps its transition time."""
    old = {str(c.get("type")): c for c in before if isinstance(c, dict)} if isinstance(before, list) else {}
    return [_stamped(old.get(condition.type), condition, generation, at) for condition in conditions]


def _stamped(old: JsonObject | None, condition: Condition, generation: int, at: str) -> JsonObject:
    same = old is not None and old.get("status") == condition.status and old.get("reason") == condition.reason
    line: JsonObject = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": (old or {}).get("lastTransitionTime", at) if same else at,
    }
    if condition.action:
        line["nextAction"] = condition.action
    return line


def holds(conditions: Sequence[Json] | Json, kind: str) -> bool:
    """Tell whether a status's conditions say that ``kind`` is true."""
    return isinstance(conditions, list | tuple) and any(
        isinstance(c, dict) and c.get("type") == kind and c.get("status") == TRUE for c in conditions
    )
