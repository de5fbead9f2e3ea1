"""What does each write to a store mean? Written once, over five small table operations that every store has.

1. All of a set is applied, or nothing; the caller's transaction sees to the second half.
2. A version that is given must be current. What does not change keeps its version, an unchanged spec its generation.
3. A resource with finalizers is only marked by a deletion; while it is marked it takes no new spec.
4. What a resource owns is deleted once it has gone itself, and so on downwards.
5. Who changed what is an event in the same transaction.
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from stoker.base.errors import Conflict, Invalid, NotFound
from stoker.base.json import JsonObject
from stoker.drivers.store.base import Event, Resource

Key: TypeAlias = tuple[str, str, str]
CASCADE = "stoker:cascade"


class Tables(Protocol):
    """The table operations of one open transaction."""

    def find(self, key: Key) -> Resource | None:
        """Read one resource."""

    def exists(self, uid: str) -> bool:
        """Tell whether any resource has this uid."""

    def owned(self, uid: str) -> Sequence[Resource]:
        """Read what is owned by this uid, ordered by kind, namespace and name."""

    def write(self, resource: Resource, *, gone: bool) -> Resource:
        """Write or remove it under a new version, put the change into the log, and give it back with that version."""

    def note(self, event: Event) -> None:
        """Keep an event, or count its equal predecessor up."""


def key_of(resource: Resource) -> Key:
    """Tell what identifies a resource besides its uid."""
    return resource.kind, resource.namespace, resource.name


def title(key: Key) -> str:
    """Name a resource for a person."""
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def absent(key: Key) -> NotFound:
    """Say that it is not there."""
    return NotFound(f"{title(key)} does not exist")


def apply(tables: Tables, resources: Sequence[Resource], *, actor: str, now: float) -> list[Resource]:
    """Create or replace all of them."""
    keys = [key_of(resource) for resource in resources]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise Invalid(f"{title(twice)} is there twice in one set")
    written = [_apply_one(tables, resource, actor=actor, now=now) for resource in resources]
    for resource in resources:
        if resource.owner is not None and not tables.exists(resource.owner.uid):
            raise Conflict(f"{title(key_of(resource))}: its owner {resource.owner.kind} {resource.owner.name} has gone")
    return written


def update_status(tables: Tables, resource: Resource, status: JsonObject) -> Resource:
    """Replace the status of the version that was read."""
    old = tables.find(key_of(resource))
    if old is None:
        raise absent(key_of(resource))
    _check_version(old, resource.resource_version)
    if old.status == status:
        return old
    return tables.write(msgspec.structs.replace(old, status=status), gone=False)


def delete(tables: Tables, key: Key, *, actor: str, now: float) -> Resource:
    """Mark it, or remove it and then what it owns."""
    old = tables.find(key)
    if old is None:
        raise absent(key)
    if old.deleted_at is not None:
        return old
    tables.note(_event(old, "DeletionAsked", f"{title(key)} was asked to go", actor=actor, now=now))
    marked = msgspec.structs.replace(old, deleted_at=now)
    return tables.write(marked, gone=False) if old.finalizers else _remove(tables, marked, now=now)


def remove_finalizer(tables: Tables, key: Key, finalizer: str, *, now: float) -> None:
    """Drop one finalizer; let a marked resource go with its last one."""
    old = tables.find(key)
    if old is None or finalizer not in old.finalizers:
        return
    rest = tuple(each for each in old.finalizers if each != finalizer)
    freed = msgspec.structs.replace(old, finalizers=rest)
    if rest or old.deleted_at is None:
        tables.write(freed, gone=False)
    else:
        _remove(tables, freed, now=now)


def same_event(old: Event | None, new: Event) -> bool:
    """Tell whether an event only repeats the one before it of the same resource."""
    return old is not None and msgspec.structs.replace(old, at=new.at, count=new.count) == new


def matches(resource: Resource, labels: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a resource carries all of these labels."""
    return all(resource.labels.get(key) == value for key, value in labels)


def _apply_one(tables: Tables, new: Resource, *, actor: str, now: float) -> Resource:
    key = key_of(new)
    old = tables.find(key)
    if old is None:
        if new.resource_version:
            raise Conflict(f"{title(key)} was deleted in between")
        fresh = msgspec.structs.replace(
            new, uid=new.uid or str(uuid.uuid4()), generation=1, created_at=now, deleted_at=None, status={}
        )
        tables.note(_event(fresh, "Created", f"{title(key)} was created", actor=actor, now=now))
        return tables.write(fresh, gone=False)
    _check_version(old, new.resource_version or old.resource_version)
    if new.uid and new.uid != old.uid:
        raise Conflict(f"{title(key)} was deleted and made anew in between")
    if old.deleted_at is not None:
        raise Conflict(f"{title(key)} is being deleted; apply it again when it has gone")
    merged = msgspec.structs.replace(
        old,
        finalizers=new.finalizers,
        owner=new.owner,
        labels=new.labels,
        annotations=new.annotations,
        schema_version=new.schema_version,
        spec=new.spec,
        generation=old.generation + (new.spec != old.spec),
    )
    if merged == old:
        return old
    if merged.generation != old.generation:
        tables.note(_event(merged, "Changed", f"generation {merged.generation} was applied", actor=actor, now=now))
    return tables.write(merged, gone=False)


def _check_version(old: Resource, version: str) -> None:
    if version != old.resource_version:
        raise Conflict(f"{title(key_of(old))} was changed by somebody else in between; read it again")


def _remove(tables: Tables, resource: Resource, *, now: float) -> Resource:
    last = tables.write(resource, gone=True)
    for child in tables.owned(resource.uid):
        if child.deleted_at is None and tables.find(key_of(child)) is not None:
            delete(tables, key_of(child), actor=CASCADE, now=now)
    return last


def _event(resource: Resource, reason: str, message: str, *, actor: str, now: float) -> Event:
    return Event(
        at=now,
        kind=resource.kind,
        namespace=resource.namespace,
        name=resource.name,
        reason=reason,
        message=message,
        actor=actor,
    )
