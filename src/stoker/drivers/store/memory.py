"""A store in memory: for tests and rehearsals. The same rules as every store, nothing kept."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from stoker.base import clock
from stoker.base.errors import Conflict
from stoker.base.json import JsonObject
from stoker.drivers.store import rules
from stoker.drivers.store.base import Change, Event, Resource
from stoker.drivers.store.rules import Key

_T = TypeVar("_T")


class _Tables:
    """What the store holds; copied before each write, so that a failed one leaves no trace."""

    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex[:8]
        self.version = 0
        self.resources: dict[Key, Resource] = {}
        self.changes: list[Change] = []
        self.events: list[Event] = []

    def copy(self) -> "_Tables":
        other = _Tables()
        other.epoch, other.version = self.epoch, self.version
        other.resources, other.changes, other.events = dict(self.resources), list(self.changes), list(self.events)
        return other

    def find(self, key: Key) -> Resource | None:
        return self.resources.get(key)

    def exists(self, uid: str) -> bool:
        return any(resource.uid == uid for resource in self.resources.values())

    def owned(self, uid: str) -> Sequence[Resource]:
        found = [resource for resource in self.resources.values() if resource.owner and resource.owner.uid == uid]
        return sorted(found, key=rules.key_of)

    def write(self, resource: Resource, *, gone: bool) -> Resource:
        self.version += 1
        written = msgspec.structs.replace(resource, resource_version=f"{self.epoch}-{self.version}")
        if gone:
            del self.resources[rules.key_of(written)]
        else:
            self.resources[rules.key_of(written)] = written
        self.changes.append(Change(version=written.resource_version, resource=written, gone=gone))
        return written

    def note(self, event: Event) -> None:
        at = next((at for at in reversed(range(len(self.events))) if _subject(self.events[at]) == _subject(event)), -1)
        if at >= 0 and rules.same_event(self.events[at], event):
            event = msgspec.structs.replace(event, count=self.events.pop(at).count + event.count)
        self.events.append(event)


class MemoryStore:
    """A store that lives and dies with the process."""

    def __init__(self, *, now: Callable[[], float] = clock.now, history: int = 10_000) -> None:
        self._now = now
        self._history = history
        self._tables = _Tables()
        self._leases: dict[str, tuple[str, float]] = {}
        self._wake = asyncio.Event()
        self._closed = False

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        """Read one resource; raises NotFound."""
        found = self._tables.find((kind, namespace, name))
        if found is None:
            raise rules.absent((kind, namespace, name))
        return found

    async def list(
        self, kind: str, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Sequence[Resource]:
        """Read all of a kind, ordered by namespace and name."""
        return [
            resource
            for key, resource in sorted(self._tables.resources.items())
            if key[0] == kind and namespace in (None, key[1]) and rules.matches(resource, (labels or {}).items())
        ]

    async def apply(self, resources: Sequence[Resource], *, actor: str) -> Sequence[Resource]:
        """Create or replace all of them, or none."""
        return self._write(lambda tables: rules.apply(tables, resources, actor=actor, now=self._now()))

    async def update_status(self, resource: Resource, status: JsonObject) -> Resource:
        """Replace the status; Conflict when the version is no longer current."""
        return self._write(lambda tables: rules.update_status(tables, resource, status))

    async def delete(self, kind: str, namespace: str, name: str, *, actor: str) -> Resource:
        """Ask for deletion; raises NotFound."""
        return self._write(lambda tables: rules.delete(tables, (kind, namespace, name), actor=actor, now=self._now()))

    async def remove_finalizer(self, kind: str, namespace: str, name: str, finalizer: str) -> None:
        """Drop one finalizer."""
        key = (kind, namespace, name)
        self._write(lambda tables: rules.remove_finalizer(tables, key, finalizer, now=self._now()))

    async def watch(self, *, since: str = "") -> AsyncIterator[Change]:
        """Follow changes; without ``since`` what exists comes first, in the order of its versions."""
        at = self._number(since) if since else self._tables.version
        if not since:
            for resource in sorted(
                self._tables.resources.values(), key=lambda each: self._number(each.resource_version)
            ):
                yield Change(version=resource.resource_version, resource=resource)
        while not self._closed:
            wake, changes = self._wake, self._tables.changes
            if at < self._tables.version - len(changes):
                raise Conflict(f"the changes after version {since or at} are no longer kept; list again")
            for change in changes[len(changes) - (self._tables.version - at) :]:
                at = self._number(change.version)
                yield change
            if at == self._tables.version:
                await wake.wait()

    async def record(self, event: Event) -> None:
        """Keep an event."""
        self._tables.note(event)

    async def events(self, *, kind: str = "", namespace: str = "", name: str = "", limit: int = 200) -> Sequence[Event]:
        """Read events, oldest first."""
        wanted = [
            event
            for event in self._tables.events
            if kind in ("", event.kind) and namespace in ("", event.namespace) and name in ("", event.name)
        ]
        return wanted[-limit:]

    async def acquire(self, lease: str, *, holder: str, ttl: float, now: float) -> bool:
        """Take or renew a lease."""
        owner, until = self._leases.get(lease, (holder, now))
        if owner != holder and until > now:
            return False
        self._leases[lease] = (holder, now + ttl)
        return True

    async def close(self) -> None:
        """End the watches."""
        self._closed = True
        self._wake.set()

    def _write(self, change: Callable[[_Tables], _T]) -> _T:
        tables = self._tables.copy()
        result = change(tables)
        tables.changes = tables.changes[-self._history :]
        tables.events = tables.events[-self._history :]
        self._tables = tables
        self._wake.set()
        self._wake = asyncio.Event()
        return result

    def _number(self, version: str) -> int:
        epoch, _, number = version.rpartition("-")
        if epoch != self._tables.epoch or not number.isdigit() or int(number) > self._tables.version:
            raise Conflict(f"version {version} is not of this store's history; list again")
        return int(number)


def _subject(event: Event) -> Key:
    return event.kind, event.namespace, event.name
