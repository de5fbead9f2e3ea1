"""Gateways of several machines with one real store: exact together, and never open, whoever is killed or goes away."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.drivers.limits.redis_server import Server, needs_redis, server
from tests.gateway.rig import (
    KEY,
    Client,
    Engine,
    Rig,
    ask,
    caller,
    endpoint,
    engines,
    gateway,
    listen,
    post,
    routes,
    silent,
    until,
    whole,
)

from stoker.drivers import live
from stoker.facts.routes import Callers, Limits, Routes, SharedLimits, seal

pytestmark = [pytest.mark.e2e, pytest.mark.anyio, needs_redis]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path) as one:
        yield one


def policy(engine: Engine, redis: Server, **rules: object) -> Routes:
    shared = SharedLimits(**{"url": redis.url, "share": 0.5, "timeout": 0.5, **rules})  # type: ignore[arg-type]
    return routes(endpoint(engine, dialects=("chat",)), shared_limits=shared)


def known(limits: Limits) -> tuple:
    return (caller("alice", KEY, limits=limits),)


async def together(*rigs: Rig) -> None:
    await until(lambda: all(rig.worker.house.limits.shared for rig in rigs))


async def statuses(*asks: Rig) -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(rig.once(post(ask(stream=True)))) for rig in asks]
    return [task.result().status for task in tasks]


async def test_two_machines_keep_one_set_of_limits(tmp_path: Path, redis: Server) -> None:
    people = known(Limits(requests_per_minute=12, tokens_per_minute=10**6, tokens_per_day=10**6))
    async with (
        engines(whole) as (engine,),
        gateway(tmp_path / "a", policy(engine, redis), callers=people) as one,
        gateway(tmp_path / "b", policy(engine, redis), callers=people) as two,
    ):
        await together(one, two)
        seen = await statuses(*([one, two] * 20))
        assert sorted(seen) == [200] * 12 + [429] * 28
        reply = await two.once(post(ask(stream=True)))
        assert reply.status == 429
        assert 1 <= int(reply.header("retry-after")) <= 6
        assert reply.header("x-ratelimit-remaining-requests") == "0"
        await one.idle()
        await two.idle()
        left = 10**6 - int(reply.header("x-ratelimit-remaining-tokens"))
        assert left == 12 * 7  # what was really used, on both machines
        assert b'stoker_limits_ok{worker="0"} 1' in one.worker._metrics()


async def test_a_killed_gateway_gives_back_what_it_held(tmp_path: Path, redis: Server) -> None:
    people = known(Limits(concurrent=2))
    async with engines(silent) as (engine,), gateway(tmp_path / "a", policy(engine, redis), callers=people) as one:
        other = tmp_path / "b"
        (other / "keys").mkdir(parents=True)
        (other / "routes.json").write_bytes(seal(policy(engine, redis)))
        (other / "callers.json").write_bytes(seal(Callers(generation=1, callers=people)))
        public = listen("127.0.0.1:0")
        public.listen(64)
        words = [sys.executable, "-m", "stoker.gateway", "--state-dir", str(other), "--listen-fd", str(public.fileno())]
        with subprocess.Popen(words, pass_fds=(public.fileno(),), stderr=subprocess.DEVNULL) as process:  # noqa: ASYNC220
            clients = []
            at = other / "run" / "gateway-0.live"
            await until(lambda: (s := live.read(at)) is not None and s.routes_generation == 1, 30)
            await until(lambda: (s := live.read(at)) is not None and not s.limits_problem, 30)
            for count in (1, 2):
                client = Client(*await asyncio.open_connection(*public.getsockname()))
                client.send(post(ask(stream=True)))
                clients.append(client)
                await until(lambda: len(engine.seen) == count, 15)  # noqa: B023
            await together(one)
            assert await statuses(one) == [429]
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        public.close()
        engine.script = whole
        async with asyncio.timeout(15):
            while (await statuses(one))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for client in clients:
            client.close()


async def test_without_the_store_each_machine_keeps_its_share_and_says_so(tmp_path: Path, redis: Server) -> None:
    people = known(Limits(requests_per_minute=20, tokens_per_day=10**6, concurrent=4))
    async with (
        engines(whole) as (engine,),
        gateway(tmp_path / "a", policy(engine, redis), callers=people) as one,
        gateway(tmp_path / "b", policy(engine, redis), callers=people) as two,
    ):
        await together(one, two)
        assert await statuses(one, two) == [200, 200]
        redis.stop()
        await until(lambda: not one.worker.house.limits.shared and not two.worker.house.limits.shared)
        for rig in (one, two):
            assert "keeps 0.5 of every limit" in rig.worker.live().limits_problem
            assert b'stoker_limits_ok{worker="0"} 0' in rig.worker._metrics()
            answers = [await rig.once(post(ask(stream=True))) for _ in range(14)]
            granted = sum(reply.status == 200 for reply in answers)
            assert 9 <= granted <= 11
            assert b"requestsPerMinute of 10 for caller alice, on this machine" in answers[-1].body
        redis.start()
        await together(one, two)
        assert one.worker.live().limits_problem == ""
        # What was used meanwhile is known to the store: the level of neither machine is full again.
        granted = [(await rig.once(post(ask(stream=True)))).status for rig in (one, two) * 8].count(200)
        assert granted <= 4


async def test_streams_that_ran_while_the_store_was_lost_still_count(tmp_path: Path, redis: Server) -> None:
    people = known(Limits(concurrent=2))
    async with (
        engines(silent) as (engine,),
        gateway(tmp_path / "a", policy(engine, redis), callers=people) as one,
        gateway(tmp_path / "b", policy(engine, redis), callers=people) as two,
    ):
        await together(one, two)
        client = await one.connect()
        client.send(post(ask(stream=True)))
        await until(lambda: len(engine.seen) == 1)
        redis.stop()
        await until(lambda: not one.worker.house.limits.shared and not two.worker.house.limits.shared)
        other = await two.connect()
        other.send(post(ask(stream=True)))  # allowed by this machine's share
        await until(lambda: len(engine.seen) == 2)
        redis.start()
        await together(one, two)
        assert await statuses(one, two) == [429, 429]
        client.close()
        other.close()
        await one.idle()
        await two.idle()
        engine.script = whole
        assert await statuses(one) == [200]


async def test_a_client_that_leaves_while_the_store_is_asked_holds_nothing(tmp_path: Path, redis: Server) -> None:
    people = known(Limits(concurrent=1))
    async with (
        engines(silent) as (engine,),
        gateway(tmp_path / "a", policy(engine, redis, timeout=2.0), callers=people) as one,
    ):
        await together(one)
        redis.say("CLIENT", "PAUSE", "700", "ALL")
        client = await one.connect()
        client.send(post(ask(stream=True)))
        await until(lambda: len(one.worker.house.active) == 1)
        client.close()
        await one.idle()
        record = await one.record()
        assert (record.outcome, record.endpoint) == ("cancelled", "")
        engine.script = whole
        async with asyncio.timeout(10):
            while (await statuses(one))[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await one.idle()
        await until(lambda: b"$-1" in redis.say("HGET", "{stoker}:running:alice", one.worker.boot))


async def test_rules_come_and_go_with_the_routes(tmp_path: Path, redis: Server) -> None:
    people = known(Limits(requests_per_minute=3))
    async with engines(whole) as (engine,):
        alone = msgspec.structs.replace(policy(engine, redis), shared_limits=None)
        async with gateway(tmp_path / "a", alone, callers=people) as one:
            assert one.worker.house.limits.shared is None
            await one.load(policy(engine, redis))
            await together(one)
            assert await statuses(one) == [200]
            assert b"2" in redis.say("HGET", "{stoker}:level:alice", "requests")
            await one.load(policy(engine, redis, url="redis://127.0.0.1:1/0"))
            await until(lambda: "store of shared limits" in one.worker.live().limits_problem)
            await one.load(alone)
            await until(lambda: one.worker.live().limits_problem == "")
