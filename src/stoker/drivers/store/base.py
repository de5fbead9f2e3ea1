"""The interface of a store: what the Kubernetes API offers, in our words.

Resource versions are opaque strings that only equality is asked of. ``generation`` grows when a spec changes,
never for a status. A resource with finalizers is only marked by ``delete``; it goes when the last finalizer has gone.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

from stoker.base.json import JsonObject


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The resource that composed this one; deleting the owner deletes it too."""

    kind: str
    name: str
    uid: str


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stored resource. Cluster-scoped kinds have namespace ""."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    created_at: float = 0.0
    deleted_at: float | None = None  # deletion was asked for; finalizers still hold it
    finalizers: tuple[str, ...] = ()
    owner: Owner | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    schema_version: int = 1
    spec: JsonObject = {}
    status: JsonObject = {}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a resource, and who did it."""

    at: float
    kind: str
    name: str
    namespace: str = ""
    reason: str
    message: str
    actor: str = ""
    warning: bool = False
    count: int = 1  # equal consecutive events are counted, not repeated


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch: the resource as it is after the change; ``gone`` when it was removed."""

    version: str
    resource: Resource
    gone: bool = False


class Store(Protocol):
    """Desired state and status. Methods raise NotFound, Conflict, Invalid or Driver."""

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        """Read one resource; raises NotFound."""

    async def list(
        self, kind: str, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Sequence[Resource]:
        """Read all of a kind, ordered by namespace and name."""

    async def apply(self, resources: Sequence[Resource], *, actor: str) -> Sequence[Resource]:
        """Create or replace spec, labels, annotations, owner and finalizers of all of them, or of none.

        A non-empty ``resource_version`` must still be current, or Conflict is raised. An unchanged spec keeps its
        generation; an entirely unchanged resource keeps its version. The status is left alone.
        """

    async def update_status(self, resource: Resource, status: JsonObject) -> Resource:
        """Replace the status; Conflict when ``resource.resource_version`` is no longer current."""

    async def delete(self, kind: str, namespace: str, name: str, *, actor: str) -> Resource:
        """Ask for deletion (and of what it owns, once it has gone); raises NotFound."""

    async def remove_finalizer(self, kind: str, namespace: str, name: str, finalizer: str) -> None:
        """Drop one finalizer; the last one lets a deleted resource go. Repeating it changes nothing."""

    def watch(self, *, since: str = "") -> AsyncIterator[Change]:
        """Follow changes of every kind after version ``since``; raises Conflict when that is too old to resume."""

    async def record(self, event: Event) -> None:
        """Keep an event; an equal one just before it is counted up instead."""

    async def events(self, *, kind: str = "", namespace: str = "", name: str = "", limit: int = 200) -> Sequence[Event]:
        """Read events, oldest first, filtered by what is given."""

    async def acquire(self, lease: str, *, holder: str, ttl: float, now: float) -> bool:
        """Take or renew a lease; False when another holder has it."""

    async def close(self) -> None:
        """Let go of files and connections."""
