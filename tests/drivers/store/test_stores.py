"""One suite for every store: what the interface promises, on SQLite and in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from stoker.base.errors import Conflict, Invalid, NotFound
from stoker.drivers.store.base import Change, Event, Owner, Resource, Store
from stoker.drivers.store.memory import MemoryStore
from stoker.drivers.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    ticks = iter(range(1, 10_000))
    now: Callable[[], float] = lambda: float(next(ticks))  # noqa: E731
    made: Store
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "state.db", now=now, history=20)
    else:
        made = MemoryStore(now=now, history=20)
    yield made
    await made.close()


def thing(name: str = "a", **changes: object) -> Resource:
    return msgspec.structs.replace(Resource(kind="Thing", namespace="ns", name=name, spec={"size": 1}), **changes)


async def test_create_read_and_list_in_order(store: Store) -> None:
    await store.apply([thing("b"), thing("a", labels={"x": "1"}), thing("a", namespace="other")], actor="me")

    got = await store.get("Thing", "ns", "a")

    assert (got.generation, got.spec, got.created_at > 0, len(got.uid)) == (1, {"size": 1}, True, 36)
    assert [(r.namespace, r.name) for r in await store.list("Thing")] == [("ns", "a"), ("ns", "b"), ("other", "a")]
    assert [r.name for r in await store.list("Thing", namespace="ns", labels={"x": "1"})] == ["a"]
    assert await store.list("Other") == []
    with pytest.raises(NotFound, match="Thing ns/zzz does not exist"):
        await store.get("Thing", "ns", "zzz")


async def test_generation_grows_with_the_spec_only(store: Store) -> None:
    (first,) = await store.apply([thing()], actor="me")
    (same,) = await store.apply([thing()], actor="me")
    (labelled,) = await store.apply([thing(labels={"x": "1"})], actor="me")
    seen = await store.update_status(labelled, {"ready": True})
    (changed,) = await store.apply([thing(spec={"size": 2})], actor="me")

    assert same == first
    assert labelled.generation == 1
    assert labelled.resource_version != first.resource_version
    assert (seen.generation, seen.status) == (1, {"ready": True})
    assert (changed.generation, changed.status, changed.uid) == (2, {"ready": True}, first.uid)
    assert (await store.update_status(changed, {"ready": True})).resource_version == changed.resource_version


async def test_a_stale_version_is_a_conflict_and_changes_nothing(store: Store) -> None:
    (old,) = await store.apply([thing()], actor="me")
    (new,) = await store.apply([thing(spec={"size": 2})], actor="you")

    with pytest.raises(Conflict, match="changed by somebody else"):
        await store.apply([thing(spec={"size": 3}, resource_version=old.resource_version)], actor="me")
    with pytest.raises(Conflict, match="changed by somebody else"):
        await store.update_status(old, {"ready": True})
    with pytest.raises(Conflict, match="deleted in between"):
        await store.apply([thing("gone", resource_version=old.resource_version)], actor="me")
    with pytest.raises(Conflict, match="made anew"):
        await store.apply([thing(uid="another")], actor="me")
    with pytest.raises(NotFound):
        await store.update_status(thing("gone"), {})
    assert await store.get("Thing", "ns", "a") == new


async def test_all_of_a_set_or_none(store: Store) -> None:
    (old,) = await store.apply([thing()], actor="me")

    with pytest.raises(Conflict):
        await store.apply([thing("new"), thing(spec={}, resource_version="stale")], actor="me")
    with pytest.raises(Invalid, match="twice"):
        await store.apply([thing("new"), thing("new")], actor="me")

    assert await store.list("Thing") == [old]
    assert [event.reason for event in await store.events(name="new")] == []


async def test_finalizers_hold_a_deleted_resource(store: Store) -> None:
    await store.apply([thing(finalizers=("x", "y"))], actor="me")

    marked = await store.delete("Thing", "ns", "a", actor="me")
    again = await store.delete("Thing", "ns", "a", actor="me")

    assert marked.deleted_at is not None
    assert again == marked
    with pytest.raises(Conflict, match="being deleted"):
        await store.apply([thing(spec={"size": 5})], actor="me")
    await store.update_status(marked, {"draining": True})
    await store.remove_finalizer("Thing", "ns", "a", "x")
    await store.remove_finalizer("Thing", "ns", "a", "x")
    assert (await store.get("Thing", "ns", "a")).finalizers == ("y",)
    await store.remove_finalizer("Thing", "ns", "a", "y")
    await store.remove_finalizer("Thing", "ns", "a", "y")
    with pytest.raises(NotFound):
        await store.get("Thing", "ns", "a")
    (anew,) = await store.apply([thing()], actor="me")
    assert (anew.generation, anew.uid != marked.uid) == (1, True)


async def test_what_is_owned_goes_after_its_owner(store: Store) -> None:
    (top,) = await store.apply([thing("top", finalizers=("hold",))], actor="me")
    (child,) = await store.apply([thing("child", owner=Owner(kind="Thing", name="top", uid=top.uid))], actor="me")
    (grandchild,) = await store.apply(
        [thing("grandchild", finalizers=("hold",), owner=Owner(kind="Thing", name="child", uid=child.uid))], actor="me"
    )

    await store.delete("Thing", "ns", "top", actor="me")
    assert [r.name for r in await store.list("Thing") if r.deleted_at is not None] == ["top"]
    await store.remove_finalizer("Thing", "ns", "top", "hold")

    assert [r.name for r in await store.list("Thing")] == ["grandchild"]
    assert (await store.get("Thing", "ns", "grandchild")).deleted_at is not None
    with pytest.raises(Conflict, match="owner Thing top has gone"):
        await store.apply([thing("late", owner=Owner(kind="Thing", name="top", uid=top.uid))], actor="me")
    assert grandchild.deleted_at is None


async def take(changes: AsyncIterator[Change], count: int) -> list[Change]:
    return [await asyncio.wait_for(anext(changes), 5) for _ in range(count)]


async def test_a_watch_shows_what_exists_then_what_changes_and_resumes(store: Store) -> None:
    await store.apply([thing("a"), thing("b")], actor="me")
    async with aclosing(store.watch()) as watch:
        first = await take(watch, 2)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await store.apply([thing("a", spec={"size": 2})], actor="me")
        third = await asyncio.wait_for(waiting, 5)
    await store.delete("Thing", "ns", "b", actor="me")

    async with aclosing(store.watch(since=third.version)) as resumed:
        (gone,) = await take(resumed, 1)
    async with aclosing(store.watch(since=first[0].version)) as earlier:
        later = await take(earlier, 3)

    assert [c.resource.name for c in first] == ["a", "b"]
    assert third.resource.spec == {"size": 2}
    assert (gone.gone, gone.resource.name, gone.version == gone.resource.resource_version) == (True, "b", True)
    assert [(c.resource.name, c.gone) for c in later] == [("b", False), ("a", False), ("b", True)]


async def test_a_version_that_is_too_old_or_foreign_is_a_conflict(store: Store) -> None:
    (old,) = await store.apply([thing()], actor="me")
    for size in range(30):
        await store.apply([thing(spec={"size": size})], actor="me")

    for since in (old.resource_version, "feedbeef-1", "nonsense", old.resource_version[:-1] + "999"):
        with pytest.raises(Conflict, match="list again"):
            await anext(store.watch(since=since))


async def test_closing_ends_a_watch(store: Store) -> None:
    watch = store.watch()
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.01)

    await store.close()

    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 5)


async def test_equal_events_are_counted_and_audited_changes_name_the_actor(store: Store) -> None:
    event = Event(at=1.0, kind="Thing", namespace="ns", name="a", reason="Started", message="it runs")
    await store.record(event)
    await store.record(msgspec.structs.replace(event, name="b", at=2.0))
    await store.record(msgspec.structs.replace(event, at=3.0))
    await store.record(msgspec.structs.replace(event, at=4.0, message="it stands"))
    await store.record(msgspec.structs.replace(event, at=5.0))

    told = [(e.name, e.at, e.message, e.count) for e in await store.events()]

    assert told == [
        ("b", 2.0, "it runs", 1),
        ("a", 3.0, "it runs", 2),
        ("a", 4.0, "it stands", 1),
        ("a", 5.0, "it runs", 1),
    ]
    assert [e.at for e in await store.events(kind="Thing", name="a", limit=2)] == [4.0, 5.0]
    await store.apply([thing()], actor="unix:0")
    await store.delete("Thing", "ns", "a", actor="key:ops")
    assert [(e.reason, e.actor) for e in (await store.events(name="a"))[-2:]] == [
        ("Created", "unix:0"),
        ("DeletionAsked", "key:ops"),
    ]


async def test_a_lease_has_one_holder_until_it_ends(store: Store) -> None:
    assert await store.acquire("loop", holder="a", ttl=10, now=100)
    assert not await store.acquire("loop", holder="b", ttl=10, now=109)
    assert await store.acquire("loop", holder="a", ttl=10, now=109)
    assert not await store.acquire("loop", holder="b", ttl=10, now=118)
    assert await store.acquire("loop", holder="b", ttl=10, now=119)
    assert await store.acquire("other", holder="a", ttl=10, now=119)
