"""One suite for every host: what the interface promises, with real processes and with the fake."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoker.base.errors import Driver
from stoker.drivers.hosts.base import Order
from stoker.drivers.hosts.fake import FakeHost
from stoker.drivers.hosts.local import LocalHost
from stoker.facts.observed import Phase, Running

pytestmark = [pytest.mark.anyio, pytest.mark.e2e]
SLEEPER = (sys.executable, "-S", "-c", "import time; time.sleep(600)")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["local", "fake"])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalHost | FakeHost]:
    made = LocalHost(tmp_path) if request.param == "local" else FakeHost()
    yield made
    for running in await made.list():
        await made.stop(running.run.name, grace=0)
    await until(made, lambda seen: all(each.phase in (Phase.EXITED, Phase.LOST) for each in seen))


def order(uid: str = "abc", attempt: int = 1, **changes: object) -> Order:
    given = {"argv": SLEEPER, "port": 20_001, "spec_hash": "hash", "devices": ("cpu",)} | changes
    return Order(uid=uid, attempt=attempt, **given)  # type: ignore[arg-type]


async def until(host: LocalHost | FakeHost, done: object) -> list[Running]:
    while True:
        seen = list(await host.list())
        if done(seen):  # type: ignore[operator]
            return seen
        await asyncio.sleep(0.02)


async def running(host: LocalHost | FakeHost, count: int = 1) -> list[Running]:
    return await until(host, lambda seen: sum(each.phase is Phase.RUNNING for each in seen) == count)


async def test_what_was_started_is_told_and_a_repetition_changes_nothing(host: LocalHost | FakeHost) -> None:
    await host.start(order(secret="s3cret"))
    (first,) = await running(host)
    await host.start(order(secret="s3cret"))
    (second,) = await running(host)

    assert first.run == second.run
    assert (first.run.uid, first.run.attempt, first.run.spec_hash, first.run.port) == ("abc", 1, "hash", 20_001)
    assert first.run.engine_pid > 0
    assert first.run.secret_file.endswith("abc-1.secret")
    assert not any("s3cret" in word for word in first.run.argv)


async def test_a_stopped_attempt_exits_and_can_then_be_forgotten(host: LocalHost | FakeHost) -> None:
    await host.start(order())
    await host.start(order(attempt=2))
    await running(host, 2)
    with pytest.raises(Driver, match="still runs"):
        await host.forget("abc-1")

    await host.stop("abc-1", grace=30)
    await host.stop("abc-1", grace=30)

    assert {each.run.name: each.phase for each in await host.list()}["abc-1"] in (Phase.STOPPING, Phase.EXITED)
    ended, other = await until(host, lambda seen: seen[0].phase is Phase.EXITED)
    assert ended.exit is not None
    assert other.phase is Phase.RUNNING
    await host.stop("abc-1", grace=30)
    await host.forget("abc-1")
    await host.forget("abc-1")
    assert [each.run.name for each in await host.list()] == ["abc-2"]
    await host.stop("unknown-1", grace=1)


async def test_no_two_attempts_lease_one_port(host: LocalHost | FakeHost) -> None:
    ports = [host.lease_port() for _ in range(5)]
    await host.start(order(port=ports[0]))
    await running(host)

    assert len({*ports, host.lease_port()}) == 6
