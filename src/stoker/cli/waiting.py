"""Is what was asked for ready, still coming, or stuck until a person acts?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stoker.base.json import JsonObject
from stoker.cli.output import condition, get, items, text

LADDER: Final = ("Accepted", "Preflighted", "CacheReady", "Scheduled", "Started", "Loaded", "Generates", "Routable")
TRIES: Final = 3  # failed attempts in a row after which waiting for the next one is pointless
# Reasons that waiting does not change.
STUCK: Final = frozenset(
    {
        "LicenceNotAccepted",
        "UnsupportedFormat",
        "UnsupportedArchitecture",
        "ContextTooLong",
        "ModelRefused",
        "BadFlag",
        "CpuLacksInstructions",
        "FetchFailed",
        "HubDenied",
        "HubNotFound",
        "HubUnreachable",
        "ChecksumMismatch",
        "NothingToFetch",
        "DiskFull",
        "Unreadable",
        "FileNotFound",
        "CacheNotFound",
        "NoContainerDriver",
        "EngineNotInstalled",
        "InsufficientCapacity",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Deployments by how they stand; ``stuck`` maps a name to why, with the next action."""

    ready: tuple[str, ...] = ()
    coming: tuple[str, ...] = ()
    stuck: dict[str, str] = field(default_factory=dict)


def state(deployments: Sequence[JsonObject], replicas: Sequence[JsonObject], *, asked: str = "") -> State:
    """Sort the deployments; only the one that was asked for when one is named."""
    ready, coming, stuck = [], [], {}
    for deployment in deployments:
        name = text(deployment, "metadata", "name")
        if asked and name != asked:
            continue
        if not _current(deployment):
            coming.append(name)
            continue
        if condition(deployment, "Ready").get("status") == "True":
            ready.append(name)
            continue
        made = text(deployment, "status", "templateHash")  # a replica of an earlier spec is stuck no more: it goes
        mine = [
            r for r in replicas if text(r, "spec", "deployment") == name and text(r, "spec", "templateHash") == made
        ]
        why = next((w for r in mine if (w := _stuck(r))), "")
        if why:
            stuck[name] = why
        else:
            coming.append(name)
    return State(ready=tuple(ready), coming=tuple(coming), stuck=stuck)


def _current(deployment: JsonObject) -> bool:
    """Tell whether the controller has looked at the spec as it is now: what it said of an earlier one is over."""
    return text(condition(deployment, "Ready"), "observedGeneration") == text(deployment, "metadata", "generation")


def _stuck(replica: JsonObject) -> str:
    """Say why a replica waits for a person; empty when it does not."""
    loops = int(str(get(replica, "status", "memory", "failures") or 0)) >= TRIES
    for c in items(replica, "status", "conditions"):
        if c.get("status") == "False" and (text(c, "reason") in STUCK or loops):
            action = f"; next: {text(c, 'nextAction')}" if c.get("nextAction") else ""
            return f"{text(c, 'type')}: {text(c, 'message') or text(c, 'reason')}{action}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """How far up the ladder a replica is, and what it waits for."""

    name: str
    done: int
    what: str


def rungs(replicas: Sequence[JsonObject]) -> list[Rung]:
    """Tell for each replica the first rung that does not hold."""
    found = []
    for replica in replicas:
        done = sum(condition(replica, rung).get("status") == "True" for rung in LADDER)
        missing = next((rung for rung in LADDER if condition(replica, rung).get("status") != "True"), "Ready")
        at = condition(replica, missing)
        what = f"{missing}: {text(at, 'message') or text(at, 'reason') or 'waiting'}"
        found.append(Rung(name=text(replica, "metadata", "name"), done=done, what=what))
    return found
