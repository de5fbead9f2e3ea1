"""What else is known of a running attempt: parsers, settings in force, metrics, start-up facts, whether it has a key.

None of these keeps a replica from being Ready; services and people act on them. What an earlier controller found out
about the same attempt still holds, so it is carried over instead of being asked for again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
from pydantic.alias_generators import to_camel

from stoker.base.json import Json, JsonObject
from stoker.control.evidence.questions import Questions
from stoker.decide.conditions import Condition, no, unknown, yes
from stoker.decide.replica import Memory
from stoker.drivers.store.base import Resource
from stoker.engines.base import Engine, LogFacts
from stoker.engines.differences import compare
from stoker.facts.observed import RunFile
from stoker.spec.deployment import EngineBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One attempt of a replica, and what it was asked to be."""

    resource: Resource
    engine: Engine
    block: EngineBlock
    memory: Memory
    run: RunFile

    @property
    def same(self) -> bool:
        """Whether the status speaks of this very attempt."""
        process = self.resource.status.get("process")
        return isinstance(process, dict) and process.get("attempt") == self.run.attempt


def conditions(of: Attempted, questions: Questions) -> list[Condition]:
    """Write the conditions beside the ladder."""
    if not of.memory.loaded_at:
        return []
    found = [_parsers(of, questions), _settings(of, questions), _metrics(of, questions), _guarded(of)]
    return [condition for condition in found if condition is not None]


def asked_before(of: Attempted) -> bool:
    """Tell whether the parsers of this attempt were judged already."""
    kept = _kept(of, "ParsersVerified")
    return kept is not None and kept.reason != "Asking"


def wants_log(of: Attempted) -> bool:
    """Tell whether the start-up log is still to be read: once per attempt, when the model is loaded."""
    return bool(of.memory.loaded_at) and not (of.same and "startup" in of.resource.status)


def fields(of: Attempted, questions: Questions, *, log: Sequence[str]) -> JsonObject:
    """Write what the status tells of the process; ``log`` is the beginning of its log, read once it is loaded."""
    told: JsonObject = {
        "process": {
            "attempt": of.run.attempt,
            "pid": of.run.engine_pid,
            "port": of.run.port,
            "log": of.run.log,
            "devices": list(of.run.devices),
        }
    }
    force = questions.in_force.get(of.run.name)
    if force is not None:
        told["inForce"] = _said(msgspec.to_builtins(force))
    elif of.same and "inForce" in of.resource.status:
        told["inForce"] = of.resource.status["inForce"]
    if of.memory.loaded_at:
        told["startup"] = _startup(of.engine.read_log(log)) if wants_log(of) else of.resource.status["startup"]
    return told


def _startup(facts: LogFacts) -> JsonObject:
    """What the start-up log told; ``ready`` and ``trouble`` are conditions of their own."""
    return {
        name: value
        for name, value in (
            ("weightBytes", facts.weight_bytes),
            ("kvCacheBytes", facts.kv_cache_bytes),
            ("kvCacheTokens", facts.kv_cache_tokens),
            ("version", facts.version),
        )
        if value is not None
    }


def _parsers(of: Attempted, questions: Questions) -> Condition | None:
    verdict = questions.verdicts.get(of.run.name)
    if verdict is not None:
        return Condition(
            type="ParsersVerified",
            status=verdict.status,
            reason=verdict.reason,
            message=verdict.message,
            action=verdict.action,
        )
    return _kept(of, "ParsersVerified") or (unknown("ParsersVerified", "Asking") if of.memory.generates_at else None)


def _settings(of: Attempted, questions: Questions) -> Condition | None:
    force = questions.in_force.get(of.run.name)
    if force is None:
        return _kept(of, "SettingsInForce")
    apart = compare(of.block, force)
    text = "; ".join(f"{d.field}: asked {d.asked}, in force {d.in_force}" for d in apart)
    return no("SettingsInForce", "DiffersFromSpec", text) if apart else yes("SettingsInForce", "AsAsked")


def _metrics(of: Attempted, questions: Questions) -> Condition | None:
    seen = questions.metrics.get(of.run.name)
    if seen is None:
        return _kept(of, "MetricsComplete")
    missing = [name for name in of.engine.expected_metrics() if name not in seen]
    if missing:
        return no("MetricsComplete", "SeriesMissing", f"not exposed: {', '.join(missing)}")
    return yes("MetricsComplete", "AllSeen")


def _guarded(of: Attempted) -> Condition:
    if of.engine.capabilities.keyed:
        return yes("Guarded", "SecretRequired", "a direct call without the secret of this start is refused")
    return no(
        "Guarded",
        "EngineKnowsNoKey",
        f"any process of this machine can call {of.engine.name} directly",
        action="let nobody else on this machine, or use an engine that takes a key (`stoker engines`)",
    )


def _kept(of: Attempted, kind: str) -> Condition | None:
    """What an earlier controller wrote about the same attempt."""
    listed = of.resource.status.get("conditions")
    if not of.same or not isinstance(listed, list):
        return None
    found = next((c for c in listed if isinstance(c, dict) and c.get("type") == kind), None)
    if found is None:
        return None
    return Condition(
        type=kind,
        status=str(found.get("status")),
        reason=str(found.get("reason")),
        message=str(found.get("message", "")),
        action=str(found.get("nextAction", "")),
    )


def _said(value: Json) -> JsonObject:
    told = cast("JsonObject", value)
    return {to_camel(name): item for name, item in told.items() if item not in (None, (), [])}
