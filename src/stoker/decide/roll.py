"""Which replicas should a deployment have now: which to create, which to retire?

1. A replica belongs to a template hash. A revert makes the old hash current again, so the old replicas that still
   serve are kept and the new ones go (nothing is rebuilt that still runs).
2. *Recreate*: the old go first, then the new come; for devices that only one engine can hold.
   *RollingUpdate*: at most ``surge`` more than wanted; an old one is retired only while at least
   ``wanted - unavailable`` others are ready, so with new-before-old the service never has none.
3. Success is said only when the wanted number of the current hash is Ready and nothing of another hash is left.
4. On scaling down the one that is not ready goes first, then the highest index.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stoker.decide.conditions import Condition, no, yes


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica that exists. ``serving``: routable, and every live gateway worker knows it.

    ``offered``: the routes have it, but not every worker has said that it knows. Requests may well go to it.
    """

    name: str
    index: int
    hash: str
    retired: bool = False
    serving: bool = False
    offered: bool = False
    failing: str = ""  # its first missing rung, in words
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the owner asked for."""

    replicas: int
    hash: str
    recreate: bool
    surge: int = 1
    unavailable: int = 0
    deadline: float = 900.0
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Make a replica of the current hash with this index."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """Drain and remove the replica of this name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now and what to tell the owner. ``since`` is when the present rollout began; it comes back in."""

    create: tuple[Create, ...] = ()
    retire: tuple[Retire, ...] = ()
    conditions: tuple[Condition, ...] = ()
    since: float = 0.0
    gone: bool = False


def roll(wanted: Wanted, replicas: Sequence[Replica], *, since: float, now: float) -> Decision:
    """Decide about one deployment. ``since`` is the start of the rollout under way, 0 when there is none."""
    if wanted.deleted:
        retire = tuple(Retire(name=r.name) for r in replicas if not r.retired)
        told = (no("Ready", "Deleting", f"{len(replicas)} replicas still drain"),)
        return Decision(retire=retire, conditions=told, gone=not replicas)
    current = [r for r in replicas if r.hash == wanted.hash and not r.retired]
    old = [r for r in replicas if r.hash != wanted.hash and not r.retired]
    surplus = _surplus(current, len(current) - wanted.replicas)
    kept = [r for r in current if r not in surplus]
    leaving = [r for r in replicas if r.retired]
    retire_old = _old_to_retire(wanted, kept, old)
    create = _to_create(wanted, kept, len(old), leaving)
    done = sum(r.serving for r in kept) == wanted.replicas and not old and not surplus and not leaving
    began = 0.0 if done else since or now
    return Decision(
        create=tuple(Create(index=i) for i in create),
        retire=tuple(Retire(name=r.name) for r in (*surplus, *retire_old)),
        conditions=_told(wanted, kept, old, leaving, late=not done and now - began > wanted.deadline),
        since=began,
    )


def _surplus(current: Sequence[Replica], count: int) -> list[Replica]:
    by_worth = sorted(current, key=lambda r: (r.serving, r.offered, -r.index))
    return by_worth[: max(0, count)]


def _old_to_retire(wanted: Wanted, kept: Sequence[Replica], old: Sequence[Replica]) -> list[Replica]:
    """Choose old replicas that may go now."""
    if wanted.recreate or wanted.replicas == 0:
        return list(old)
    # A controller that has just come back has not heard from every worker: what is offered may be all that serves.
    idle = [r for r in old if not r.serving and not r.offered]
    serving_old = sorted((r for r in old if r.serving), key=lambda r: -r.index)
    serving = sum(r.serving for r in kept) + len(serving_old)
    spare = max(0, serving - (wanted.replicas - wanted.unavailable))
    return idle + serving_old[: min(spare, len(serving_old))]


def _to_create(wanted: Wanted, kept: Sequence[Replica], old: int, leaving: Sequence[Replica]) -> list[int]:
    """Choose the indices of replicas to create now."""
    missing = wanted.replicas - len(kept)
    if wanted.recreate:
        # An exclusive device is free only when the whole of the old subtree has gone.
        room = missing if old == 0 and not leaving else 0
    else:
        room = min(missing, wanted.replicas + wanted.surge - len(kept) - old)
    taken = {r.index for r in (*kept, *leaving) if r.hash == wanted.hash}
    free = (i for i in range(len(taken) + max(0, room) + 1) if i not in taken)
    return [next(free) for _ in range(max(0, room))]


def _told(
    wanted: Wanted, kept: Sequence[Replica], old: Sequence[Replica], leaving: Sequence[Replica], *, late: bool
) -> tuple[Condition, ...]:
    ready = sum(r.serving for r in kept)
    count = f"{ready} of {wanted.replicas} replicas of the current spec are ready"
    rest = len(old) + len(leaving)
    detail = f"{count}; {rest} of an earlier spec still there" if rest else count
    failing = next((r for r in kept if not r.serving and r.failing), None)
    trouble = f"; {failing.name}: {failing.failing}" if failing else ""
    rolled = ready == wanted.replicas and not rest
    if late:
        progress = no(
            "Progressing",
            "ProgressDeadlineExceeded",
            detail + trouble,
            action="`stoker describe` the replica, or apply the earlier spec again: what still serves is kept",
        )
    else:
        progress = yes("Progressing", "Complete" if rolled else "RollingOut", detail)
    served = sum(r.serving for r in (*kept, *old))
    available = (
        yes("Available", "Serving", f"{served} replicas serve")
        if served or not wanted.replicas
        else no("Available", "NoneServing", detail + trouble)
    )
    ready_now = yes("Ready", "AllReplicasReady", count) if rolled else no("Ready", "ReplicasNotReady", detail + trouble)
    return (available, progress, ready_now)
