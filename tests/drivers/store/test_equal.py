"""Whatever is done, in whatever order, SQLite and memory answer the same, and SQLite keeps it over a reopening."""

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stoker.base.errors import StokerError
from stoker.drivers.store.base import Event, Owner, Resource, Store
from stoker.drivers.store.memory import MemoryStore
from stoker.drivers.store.sqlite import SqliteStore

NAMES = st.sampled_from(["a", "b", "c"])
MARKS = st.sets(st.sampled_from(["x", "y"])).map(sorted).map(tuple)


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "state.db")
        self.ticks = itertools.count(1)
        self.now = 0.0
        self.sqlite = SqliteStore(self.path, now=lambda: self.now)
        self.memory = MemoryStore(now=lambda: self.now)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.close())
        self.loop.close()
        self.folder.cleanup()

    def both(self, work: Callable[[Store], Awaitable[object]]) -> None:
        self.now = float(next(self.ticks))
        assert self.one(work, self.sqlite) == self.one(work, self.memory)

    def one(self, work: Callable[[Store], Awaitable[object]], store: Store) -> object:
        async def outcome() -> object:
            try:
                return plain(await work(store))
            except StokerError as error:
                return type(error)

        return self.loop.run_until_complete(outcome())

    @rule(names=st.lists(NAMES, min_size=1, max_size=3), size=st.integers(1, 2), marks=MARKS, owner=st.none() | NAMES)
    def apply(self, names: list[str], size: int, marks: tuple[str, ...], owner: str | None) -> None:
        async def work(store: Store) -> object:
            held = None
            if owner:
                held = Owner(kind="Thing", name=owner, uid=(await store.get("Thing", "ns", owner)).uid)
            things = [
                Resource(
                    kind="Thing", namespace="ns", name=n, uid="", spec={"size": size}, finalizers=marks, owner=held
                )
                for n in names
            ]
            return await store.apply(things, actor="me")

        self.both(work)

    @rule(name=NAMES, ready=st.booleans(), stale=st.booleans())
    def status(self, name: str, ready: bool, stale: bool) -> None:  # noqa: FBT001
        async def work(store: Store) -> object:
            read = await store.get("Thing", "ns", name)
            if stale:
                await store.apply([msgspec.structs.replace(read, labels={"n": str(self.now)})], actor="me")
            return await store.update_status(read, {"ready": ready})

        self.both(work)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.both(lambda store: store.delete("Thing", "ns", name, actor="me"))

    @rule(name=NAMES, mark=st.sampled_from(["x", "y"]))
    def remove_finalizer(self, name: str, mark: str) -> None:
        self.both(lambda store: store.remove_finalizer("Thing", "ns", name, mark))

    @rule(name=NAMES, message=st.sampled_from(["up", "down"]))
    def record(self, name: str, message: str) -> None:
        event = Event(at=self.now, kind="Thing", namespace="ns", name=name, reason="R", message=message)
        self.both(lambda store: store.record(event))

    @rule(holder=st.sampled_from(["p", "q"]), ttl=st.floats(0, 4))
    def acquire(self, holder: str, ttl: float) -> None:
        self.both(lambda store: store.acquire("loop", holder=holder, ttl=ttl, now=self.now))

    @rule()
    def reopen(self) -> None:
        self.loop.run_until_complete(self.sqlite.close())
        self.sqlite = SqliteStore(self.path, now=lambda: self.now)

    @invariant()
    def they_hold_the_same(self) -> None:
        self.both(lambda store: store.list("Thing"))
        self.both(lambda store: store.events())


def plain(value: object) -> object:
    """What is equal in both: everything but the random uids and the name of the history."""
    if isinstance(value, Resource):
        owner = None if value.owner is None else value.owner.name
        bare = msgspec.structs.replace(
            value, uid="", owner=None, resource_version=value.resource_version.rpartition("-")[2]
        )
        return bare, owner
    return [plain(each) for each in value] if isinstance(value, list) else value


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
