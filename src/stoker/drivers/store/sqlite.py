"""The store of one machine: ``state.db``. One thread owns the connection, so no statement ever stops the event loop."""

import asyncio
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from stoker.base import clock
from stoker.base.errors import Conflict
from stoker.base.json import JsonObject
from stoker.drivers.store import database, rules
from stoker.drivers.store.base import Change, Event, Resource
from stoker.drivers.store.rules import Key

MIGRATIONS: Final = "stoker.drivers.store.sql"
BATCH: Final = 500

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode
_resource = msgspec.json.Decoder(Resource).decode
_event = msgspec.json.Decoder(Event).decode

restore = database.restore


class _Tables:
    """The table operations of the transaction that is open on the connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        if db.execute("SELECT count(*) FROM meta").fetchone()[0] == 0:
            db.execute("INSERT INTO meta VALUES (?, 0)", (uuid.uuid4().hex[:8],))
        self.epoch, self.version = db.execute("SELECT epoch, version FROM meta").fetchone()

    def find(self, key: Key) -> Resource | None:
        query = "SELECT body FROM resources WHERE kind = ? AND namespace = ? AND name = ?"
        row = self.db.execute(query, key).fetchone()
        return None if row is None else _resource(row[0])

    def exists(self, uid: str) -> bool:
        return self.db.execute("SELECT 1 FROM resources WHERE uid = ?", (uid,)).fetchone() is not None

    def owned(self, uid: str) -> Sequence[Resource]:
        query = "SELECT body FROM resources WHERE owner_uid <> '' AND owner_uid = ? ORDER BY kind, namespace, name"
        return [_resource(body) for (body,) in self.db.execute(query, (uid,))]

    def write(self, resource: Resource, *, gone: bool) -> Resource:
        self.version += 1
        written = msgspec.structs.replace(resource, resource_version=f"{self.epoch}-{self.version}")
        key, body = rules.key_of(written), _encode(written)
        if gone:
            self.db.execute("DELETE FROM resources WHERE kind = ? AND namespace = ? AND name = ?", key)
        else:
            owner = written.owner.uid if written.owner else ""
            row = (*key, written.uid, owner, self.version, body)
            self.db.execute("INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self.db.execute("INSERT INTO changes VALUES (?, ?, ?)", (self.version, gone, body))
        self.db.execute("UPDATE meta SET version = ?", (self.version,))
        return written

    def note(self, event: Event) -> None:
        key = (event.kind, event.namespace, event.name)
        query = (
            "SELECT number, body FROM events WHERE kind = ? AND namespace = ? AND name = ? ORDER BY number DESC LIMIT 1"
        )
        row = self.db.execute(query, key).fetchone()
        if row is not None and rules.same_event(last := _event(row[1]), event):
            self.db.execute("DELETE FROM events WHERE number = ?", (row[0],))
            event = msgspec.structs.replace(event, count=last.count + event.count)
        insert = "INSERT INTO events (kind, namespace, name, body) VALUES (?, ?, ?, ?)"
        self.db.execute(insert, (*key, _encode(event)))


class SqliteStore:
    """A store in one file. Opening it blocks until it is checked; Driver tells what is wrong with it."""

    def __init__(self, path: Path, *, now: Callable[[], float] = clock.now, history: int = 10_000) -> None:
        self._now = now
        self._history = history
        self._path = path
        self._wake = asyncio.Event()
        self._closed = False
        self._lock = database.lock(path)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            self._tables = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown()
            os.close(self._lock)
            raise

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        """Read one resource; raises NotFound."""
        key = (kind, namespace, name)
        found = await self._run(lambda: self._tables.find(key))
        if found is None:
            raise rules.absent(key)
        return found

    async def list(
        self, kind: str, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Sequence[Resource]:
        """Read all of a kind, ordered by namespace and name."""

        def read() -> list[Resource]:
            query = (
                "SELECT body FROM resources WHERE kind = ? AND (? IS NULL OR namespace = ?) ORDER BY namespace, name"
            )
            rows = self._tables.db.execute(query, (kind, namespace, namespace))
            found = [_resource(body) for (body,) in rows]
            return [resource for resource in found if rules.matches(resource, (labels or {}).items())]

        return await self._run(read)

    async def apply(self, resources: Sequence[Resource], *, actor: str) -> Sequence[Resource]:
        """Create or replace all of them, or none."""
        return await self._write(lambda: rules.apply(self._tables, resources, actor=actor, now=self._now()))

    async def update_status(self, resource: Resource, status: JsonObject) -> Resource:
        """Replace the status; Conflict when the version is no longer current."""
        return await self._write(lambda: rules.update_status(self._tables, resource, status))

    async def delete(self, kind: str, namespace: str, name: str, *, actor: str) -> Resource:
        """Ask for deletion; raises NotFound."""
        key = (kind, namespace, name)
        return await self._write(lambda: rules.delete(self._tables, key, actor=actor, now=self._now()))

    async def remove_finalizer(self, kind: str, namespace: str, name: str, finalizer: str) -> None:
        """Drop one finalizer."""
        key = (kind, namespace, name)
        await self._write(lambda: rules.remove_finalizer(self._tables, key, finalizer, now=self._now()))

    async def watch(self, *, since: str = "") -> AsyncIterator[Change]:
        """Follow changes; without ``since`` what exists comes first, in the order of its versions."""
        if since:
            at = await self._run(lambda: self._number(since))
        else:
            at, existing = await self._run(self._snapshot)
            for change in existing:
                yield change
        while not self._closed:
            wake, start = self._wake, at
            for number, change in await self._run(lambda: self._changes(start)):  # noqa: B023 - awaited at once
                at = number
                yield change
            if at == start:
                await wake.wait()

    async def record(self, event: Event) -> None:
        """Keep an event."""
        await self._write(lambda: self._tables.note(event))

    async def events(self, *, kind: str = "", namespace: str = "", name: str = "", limit: int = 200) -> Sequence[Event]:
        """Read events, oldest first."""
        query = (
            "SELECT body FROM events WHERE ? IN ('', kind) AND ? IN ('', namespace) AND ? IN ('', name)"
            " ORDER BY number DESC LIMIT ?"
        )
        rows = await self._run(lambda: self._tables.db.execute(query, (kind, namespace, name, limit)).fetchall())
        return [_event(body) for (body,) in reversed(rows)]

    async def acquire(self, lease: str, *, holder: str, ttl: float, now: float) -> bool:
        """Take or renew a lease."""
        query = (
            "INSERT INTO leases VALUES (?1, ?2, ?3 + ?4) ON CONFLICT (name) DO UPDATE"
            " SET holder = ?2, until = ?3 + ?4 WHERE holder = ?2 OR until <= ?3"
        )
        return await self._write(lambda: self._tables.db.execute(query, (lease, holder, now, ttl)).rowcount == 1)

    async def backup(self, path: Path) -> None:
        """Write a consistent copy while the store goes on; it appears under its name when it is complete."""
        await asyncio.to_thread(database.backup, self._path, path)

    async def close(self) -> None:
        """End the watches and let go of the file."""
        if self._closed:
            return
        self._closed = True
        self._wake.set()
        await self._run(self._tables.db.close)
        self._thread.shutdown()
        os.close(self._lock)

    def _open(self) -> _Tables:
        db = database.open_database(self._path, MIGRATIONS)
        database.reserve(self._path)
        with database.told(self._path):
            return _Tables(db)

    async def _run(self, work: Callable[[], _T]) -> _T:
        def told() -> _T:
            with database.told(self._path):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._thread, told)

    async def _write(self, work: Callable[[], _T]) -> _T:
        result = await self._run(lambda: self._transaction(work))
        self._wake.set()
        self._wake = asyncio.Event()
        return result

    def _transaction(self, work: Callable[[], _T]) -> _T:
        db, before = self._tables.db, self._tables.version
        db.execute("BEGIN IMMEDIATE")
        try:
            result = work()
            self._prune()
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # a full disk may have ended it already
                db.execute("ROLLBACK")
            self._tables.version = before
            raise
        return result

    def _prune(self) -> None:
        self._tables.db.execute("DELETE FROM changes WHERE version <= ?", (self._tables.version - self._history,))
        prune = "DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - ?"
        self._tables.db.execute(prune, (self._history,))

    def _snapshot(self) -> tuple[int, Sequence[Change]]:
        rows = self._tables.db.execute("SELECT body FROM resources ORDER BY version")
        existing = [_resource(body) for (body,) in rows]
        return self._tables.version, [Change(version=each.resource_version, resource=each) for each in existing]

    def _changes(self, after: int) -> Sequence[tuple[int, Change]]:
        (oldest,) = self._tables.db.execute("SELECT min(version) FROM changes").fetchone()
        if after < self._tables.version and (oldest is None or after + 1 < oldest):
            raise Conflict(f"the changes after version {self._tables.epoch}-{after} are no longer kept; list again")
        query = "SELECT version, gone, body FROM changes WHERE version > ? ORDER BY version LIMIT ?"
        rows = self._tables.db.execute(query, (after, BATCH))
        found = [(number, bool(gone), _resource(body)) for number, gone, body in rows]
        return [
            (number, Change(version=each.resource_version, resource=each, gone=gone)) for number, gone, each in found
        ]

    def _number(self, version: str) -> int:
        epoch, _, number = version.rpartition("-")
        if epoch != self._tables.epoch or not number.isdigit() or int(number) > self._tables.version:
            raise Conflict(f"version {version} is not of this store's history; list again")
        return int(number)
