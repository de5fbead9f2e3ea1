"""Limits over several machines, against a real server: the same arithmetic, exact, and never open when it is gone."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.drivers.limits.redis_server import Server, needs_redis, server

from stoker.decide.quota.level import DAY_SECONDS, Demand, Level, Verdict
from stoker.drivers.limits.store import Store
from stoker.drivers.limits.table import Table
from stoker.facts import routes
from stoker.facts.routes import Limits

pytestmark = [pytest.mark.e2e, pytest.mark.anyio, needs_redis]
NOW = 20_000.5 * DAY_SECONDS


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("redis")) as one:
        yield one


def demand(name: str = "a", **limits: int) -> Demand:
    return Demand(name, Limits(**limits), f"caller {name}")


def fresh(_: Demand) -> Level:
    return Level()


@asynccontextmanager
async def store(
    redis: Server,
    folder: Path,
    worker: str = "w0",
    machine: str = "m0",
    *,
    now: float = 0.0,
    recall: Callable[[Demand], Level] = fresh,
    lease: float = 6.0,
    **rules: object,
) -> AsyncIterator[Store]:
    known = {"url": redis.url, "share": 0.5, "prefix": folder.name, "timeout": 0.25, **rules}
    made = Store(routes.SharedLimits(**known), folder, worker=worker, machine=machine, recall=recall)  # type: ignore[arg-type]
    made.now, made.lease = now, lease
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.leave()
        await asyncio.wait_for(task, 5)


async def until(condition: Callable[[], bool], limit: float = 8.0) -> None:
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 -- whatever the condition is
            await asyncio.sleep(0.01)


async def ask(one: Store, *demands: Demand, tokens: int = 0) -> Verdict | None:
    answer: asyncio.Future[Verdict | None] = asyncio.get_running_loop().create_future()
    one.reserve(demands, tokens, answer.set_result)
    return await asyncio.wait_for(answer, 5)


async def granted(one: Store, *demands: Demand, tokens: int = 0) -> bool:
    verdict = await ask(one, *demands, tokens=tokens)
    assert verdict is not None
    return verdict.refusal is None


def alike(one: Verdict, two: Verdict) -> bool:
    """Equal but for the last bit of a level, which both refill at other moments."""
    if one.refusal is None or two.refusal is None:
        same = one.refusal == two.refusal
    else:
        wait = abs(one.refusal.retry_after - two.refusal.retry_after)
        same = wait < 1e-6 and one.refusal.limit == two.refusal.limit and one.refusal.whose == two.refusal.whose
    here, there = one.left, two.left
    same = same and (here.requests_limit, here.tokens_limit) == (there.requests_limit, there.tokens_limit)
    return same and abs(here.requests - there.requests) <= 1 and abs(here.tokens - there.tokens) <= 1


@pytest.mark.parametrize("seed", range(4))
async def test_the_script_decides_as_the_table_does(redis: Server, tmp_path: Path, seed: int) -> None:
    """Two machines on one store beside one table: the same grants, refusals and remainders at every step."""
    draw = random.Random(seed)
    table = Table(tmp_path / "limits", 0)
    scopes = [
        demand("a", requests_per_minute=20, tokens_per_minute=900, concurrent=3),
        demand("a at m", tokens_per_day=9000, tokens_per_minute=2000),
        demand("model m", requests_per_minute=50, tokens_per_minute=1500, concurrent=4),
    ]
    held: list[tuple[Store, tuple[Demand, ...], int]] = []
    now, refusals, grants = NOW, 0, 0
    async with store(redis, tmp_path, lease=1e6) as one, store(redis, tmp_path, "w1", "m1", lease=1e6) as two:
        await until(lambda: one.up and two.up)
        for _ in range(250):
            now += draw.choice((0.0, 0.5, 3.0))
            which = draw.choice((one, two))
            one.now = two.now = now
            if held and draw.random() < 0.5:
                owner, demands, tokens = held.pop(draw.randrange(len(held)))
                used, request = draw.choice(((0, False), (0, True), (tokens, True), (tokens * 3, True)))
                owner.settle(demands, reserved=tokens, used=used, request=request)
                table.settle(demands, reserved=tokens, used=used, now=now, request=request)
                await until(lambda: not one._queue and not two._queue and not one._came.is_set())
                await asyncio.sleep(0.005)
                continue
            demands = tuple(draw.sample(scopes, draw.randint(1, 3)))
            tokens = draw.choice((0, 10, 10, 50, 100, 200, 1000))
            here = table.reserve(demands, tokens=tokens, now=now)
            there = await ask(which, *demands, tokens=tokens)
            assert there is not None
            assert alike(there, here)
            refusals += there.refusal is not None
            grants += there.refusal is None
            if there.refusal is None:
                held.append((which, demands, tokens))
    assert refusals > 20
    assert grants > 20


async def test_many_at_once_over_two_machines_are_exact(redis: Server, tmp_path: Path) -> None:
    rule = demand(concurrent=7, requests_per_minute=40)
    async with store(redis, tmp_path, now=NOW) as one, store(redis, tmp_path, "w1", "m1", now=NOW) as two:
        await until(lambda: one.up and two.up)
        async with asyncio.TaskGroup() as group:
            asks = [group.create_task(granted(which, rule)) for which in (one, two) for _ in range(100)]
        assert sum(task.result() for task in asks) == 7
        for owner, task in zip([one] * 100 + [two] * 100, asks, strict=True):
            if task.result():
                owner.settle((rule,), reserved=0, used=0, request=True)
        await until(lambda: not one._queue and not two._queue)
        async with asyncio.TaskGroup() as group:
            asks = [group.create_task(granted(which, rule)) for which in (one, two) for _ in range(100)]
        assert sum(task.result() for task in asks) == 7


async def test_what_a_dead_machine_held_is_free_after_its_lease(redis: Server, tmp_path: Path) -> None:
    rule = demand(concurrent=1)
    async with store(redis, tmp_path, lease=0.4) as alive, store(redis, tmp_path, "w1", "m1", lease=0.4) as dead:
        await until(lambda: alive.up and dead.up)
        assert await granted(dead, rule)
        dead.lease = 1000.0  # no sign of life any more: what a kill does
        redis.say("ZADD", f"{{{tmp_path.name}}}:workers", "1", "w1")
        assert await granted(alive, rule)
        assert not await granted(alive, rule)


async def test_a_worker_that_was_only_silent_says_again_what_it_holds(redis: Server, tmp_path: Path) -> None:
    rule = demand(concurrent=2)
    async with store(redis, tmp_path) as one, store(redis, tmp_path, "w1", "m1") as two:
        await until(lambda: one.up and two.up)
        assert await granted(one, rule)
        assert await granted(one, rule)
        redis.say("FLUSHALL")
        redis.say("SCRIPT", "FLUSH")
        await granted(one, demand("b", concurrent=1))  # its next word
        await until(lambda: b"2" in redis.say("HGET", f"{{{tmp_path.name}}}:running:a", "w0"))
        assert not await granted(two, rule)
        one.settle((rule,), reserved=0, used=0, request=True)
        await until(lambda: not one._queue)
        assert await granted(two, rule)


async def test_a_store_that_is_gone_makes_nobody_wait_and_comes_back_by_itself(tmp_path: Path) -> None:
    rule = demand(concurrent=3, tokens_per_day=1000, tokens_per_minute=900)
    spent = {"a": 0}

    def recall(_: Demand) -> Level:
        return Level(tokens=450.0, at=NOW, day=int(NOW // DAY_SECONDS), spent=spent["a"])

    with server(tmp_path) as redis:
        async with store(redis, tmp_path, now=NOW, recall=recall) as one:
            await until(lambda: one.up)
            assert await granted(one, rule, tokens=100)
            redis.stop()
            assert await ask(one, rule, tokens=100) is None
            await until(lambda: not one.up)
            assert "store of shared limits" in one.problem
            one.hold((rule,))  # this machine has decided alone
            spent["a"] = 700
            redis.start()
            await until(lambda: one.up)
            assert one.problem == ""
            verdict = await ask(one, rule, tokens=250)  # two are under way, 700 of 1000 were used, 450 are in the level
            assert verdict is not None
            assert verdict.refusal is None
            assert (verdict.left.tokens, verdict.left.tokens_limit) == (50, 1000)
            assert not await granted(one, rule)
            for _ in range(3):
                one.settle((rule,), reserved=100, used=100, request=True)
            await until(lambda: not one._held)


async def test_a_slow_store_is_waited_for_only_so_long(redis: Server, tmp_path: Path) -> None:
    rule = demand(requests_per_minute=5)
    async with store(redis, tmp_path, timeout=0.1) as one:
        await until(lambda: one.up)
        redis.say("CLIENT", "PAUSE", "1500", "ALL")
        assert await ask(one, rule) is None
        assert not one.up
        assert "in time" in one.problem
        await until(lambda: one.up)
        assert await granted(one, rule)


async def test_credentials_come_from_a_file_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    with server(tmp_path, "--requirepass", "s3cret") as redis:
        async with store(redis, tmp_path) as one:
            await until(lambda: "credentialFile" in one.problem)
        (tmp_path / "password").write_text("s3cret\n")
        async with store(redis, tmp_path, credential_file="password") as two:
            await until(lambda: two.up)
            assert await granted(two, demand(concurrent=1))
        async with store(redis, tmp_path, credential_file="nowhere") as three:
            await until(lambda: "credential cannot be read" in three.problem)
        assert "s3cret" not in one.problem + three.problem
