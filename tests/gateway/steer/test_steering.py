"""Sessions stay with the replica that has their prompt, on two gateways alike; one that hangs delays nobody else."""

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    KEY,
    Client,
    Engine,
    Rig,
    Seen,
    ask,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    until,
    whole,
)

from stoker.facts.routes import Endpoint, Routes, State, Target, Timeouts

HEADERS = ["x-claude-code-session-id", "session-id", "x-session-affinity"]


def conversation(session: int, turn: int) -> list[dict[str, str]]:
    said = [{"role": "system", "content": "You help. Today is 2026-11-30."}]
    for n in range(turn + 1):
        said.append({"role": "user", "content": f"question {n} of the session {'abcdefghijklmnopqrst'[session] * 9}"})
        if n < turn:
            said.append({"role": "assistant", "content": f"answer {n}"})
    return said


def home(replicas: Sequence[Engine], needle: bytes) -> int:
    return next(at for at, engine in enumerate(replicas) for seen in reversed(engine.seen) if needle in seen.body)


@pytest.mark.parametrize("keyed", [True, False], ids=["session header", "prompt alone"])
async def test_later_turns_find_their_replica_over_two_gateways(tmp_path: Path, *, keyed: bool) -> None:
    async with engines(whole, whole, whole) as replicas:
        policy = routes(*(endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)))
        async with gateway(tmp_path / "a", policy) as one, gateway(tmp_path / "b", policy) as two:
            places: dict[int, list[int]] = {}
            for turn in range(5):
                for session in range(20):
                    mark = f"turn-{turn}-session-{session}-"
                    body = ask(messages=conversation(session, turn), user=mark)
                    extra = f"{HEADERS[session % 3]}: session-{session}\r\n" if keyed else ""
                    rig: Rig = (one, two)[(turn + session) % 2]
                    assert (await rig.once(post(body, extra=extra))).status == 200
                    places.setdefault(session, []).append(home(replicas, mark.encode()))

    stayed = sum(place == there[0] for there in places.values() for place in there[1:])
    assert stayed / (20 * 4) >= 0.95
    assert len({there[0] for there in places.values()}) == 3  # and not because all went to one


async def test_a_hot_prompt_spreads(tmp_path: Path) -> None:
    async def slow(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        await engine.release.wait()
        await whole(engine, seen, writer)

    async with engines(slow, slow, slow) as replicas:
        policy = routes(*(endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)))
        async with gateway(tmp_path, policy) as rig:
            tasks = [asyncio.create_task(rig.once(post(ask()))) for _ in range(60)]
            await until(lambda: sum(engine.running for engine in replicas) == 60)
            counts = [engine.running for engine in replicas]
            for engine in replicas:
                engine.release.set()
            assert {reply.status for reply in await asyncio.gather(*tasks)} == {200}  # noqa: TID251 -- a test
            await rig.idle()

    assert max(counts) / 20 <= 1.5


async def test_a_restarted_replica_loses_its_sessions(tmp_path: Path) -> None:
    """A new incarnation has a new place in every order: what was cached is gone."""
    async with engines(whole, whole, whole) as replicas:
        points = [endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)]
        async with gateway(tmp_path, routes(*points)) as rig:
            marks = itertools.count()

            async def where(session: int) -> int:
                mark = f"mark-{next(marks)}-"
                await rig.once(post(ask(user=mark), extra=f"x-session-id: s{session}\r\n"))
                return home(replicas, mark.encode())

            before = {session: await where(session) for session in range(60)}
            points[1] = msgspec.structs.replace(points[1], incarnation="e1-2")
            await rig.load(routes(*points))
            after = {session: await where(session) for session in range(60)}

    lost = [session for session, place in before.items() if place == 1]
    assert lost
    assert sum(after[session] == 1 for session in lost) < len(lost) * 0.7
    for session, place in before.items():  # the others stay, but for those that now prefer the new one
        assert after[session] in (place, 1) or place == 1


async def test_a_black_hole_delays_nobody_else(tmp_path: Path) -> None:
    """An address that takes no connection: whoever is sent there fails over, and it is soon left alone."""
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen(0)
    stuffing = [socket.socket() for _ in range(4)]
    for one in stuffing:
        one.setblocking(False)  # noqa: FBT003
        one.connect_ex(hole.getsockname())
    async with engines(whole) as (good,):
        policy = routes(endpoint(good, "good"), endpoint(hole.getsockname()[1], "hole"), timeouts=Timeouts(connect=0.3))
        async with gateway(tmp_path, policy) as rig:
            replies = [await rig.once(post(ask(), extra=f"x-session-id: s{n}\r\n")) for n in range(40)]
            records = [await rig.record(n + 1) for n in range(40)]
            up = rig.worker.house.fleet.upstreams["hole"]
            assert {reply.status for reply in replies} == {200}
            assert up.ejected_until > 0
    for one in (*stuffing, hole):
        one.close()
    slow = [record for record in records if record.times.total > 0.25]
    assert len(slow) <= 5  # three in a row until it is left alone, and who tries again later


async def test_requests_in_turn(tmp_path: Path) -> None:
    async with engines(whole, whole) as replicas:
        policy = routes(*(endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)))
        service = msgspec.structs.replace(policy.services[0], policy="RoundRobin")
        async with gateway(tmp_path, msgspec.structs.replace(policy, services=(service,))) as rig:
            for _ in range(6):
                await rig.once(post(ask(), extra="x-session-id: one\r\n"))
        assert [len(engine.seen) for engine in replicas] == [3, 3]


async def test_what_was_taken_out_of_the_key_is_told(tmp_path: Path) -> None:
    async with engines(whole, whole) as replicas:
        policy = routes(*(endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)))
        async with gateway(tmp_path, policy) as rig:
            dated = ask(messages=[{"role": "user", "content": "It is November 30, 2026. Hi"}])
            assert (await rig.once(post(dated))).header("x-stoker-normalised") == "date"
            assert (await rig.once(post(ask()))).header("x-stoker-normalised") == ""
            off = msgspec.structs.replace(policy.services[0], normalise=False)
            await rig.load(msgspec.structs.replace(policy, services=(off,)))
            assert (await rig.once(post(dated))).header("x-stoker-normalised") == ""


async def test_a_split_by_weight_and_the_next_priority(tmp_path: Path) -> None:
    async with engines(whole, whole, whole) as replicas:
        points = [endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)]
        policy = routes(*points)
        targets = (
            Target(endpoints=("e0",), weight=3),
            Target(endpoints=("e1",), weight=1),
            Target(endpoints=("e2",), priority=1),
        )
        service = msgspec.structs.replace(policy.services[0], targets=targets)
        policy = msgspec.structs.replace(policy, services=(service,))
        async with gateway(tmp_path, policy) as rig:
            for n in range(80):
                await rig.once(post(ask(), extra=f"x-session-id: s{n}\r\n"))
            counts = [len(engine.seen) for engine in replicas]
            assert counts[2] == 0
            assert 8 <= counts[1] <= 35
            await rig.load(drained(policy, "e0", "e1"))
            await rig.once(post(ask()))
            assert len(replicas[2].seen) == 1


def drained(policy: Routes, *names: str) -> Routes:
    def state(spec: Endpoint) -> Endpoint:
        return msgspec.structs.replace(spec, state=State.DRAIN) if spec.name in names else spec

    return msgspec.structs.replace(policy, endpoints=tuple(map(state, policy.endpoints)))


async def test_memory_is_bounded_under_distinct_prompts(tmp_path: Path) -> None:
    """No index of prompts is kept, so a million of them leave nothing behind; a few thousand show it."""
    import gc  # noqa: PLC0415 -- only here

    async with engines(whole, whole) as replicas:
        policy = routes(*(endpoint(engine, f"e{n}") for n, engine in enumerate(replicas)))
        async with gateway(tmp_path, policy) as rig:
            client: Client = await rig.connect()

            async def some(count: int, start: int) -> int:
                for n in range(count):
                    client.send(post(ask(messages=[{"role": "user", "content": f"prompt {start + n}"}]), key=KEY))
                    await client.reply()
                for engine in replicas:
                    engine.seen.clear()
                gc.collect()
                kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
                return kinds["dict"] + kinds["tuple"] + kinds["list"]

            before = await some(300, 0)
            after = await some(900, 300)
            client.close()
    assert after - before < 300
