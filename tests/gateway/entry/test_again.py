"""What is asked again: a turn by an agent, poison, and a retry by ourselves."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    FIRST,
    KEY,
    OTHER,
    SSE,
    Engine,
    Seen,
    ask,
    chunk,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    until,
    whole,
)

from stoker.facts.routes import Routes, State, Timeouts

SESSION = "x-claude-code-session-id: one\r\n"


async def when_let_go(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Say nothing until let go, then answer."""
    waits = [asyncio.create_task(event.wait()) for event in (engine.release, seen.gone)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if not seen.gone.is_set():
        await whole(engine, seen, writer)


async def begun(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Say the first word, then wait; a second request is answered at once."""
    if len(engine.seen) > 1:
        await whole(engine, seen, writer)
        return
    writer.write(SSE + chunk(FIRST))
    await seen.gone.wait()


def policy(*points: object, duplicates: str = "Join", **fields: object) -> Routes:
    made = routes(*points, **fields)  # type: ignore[arg-type]
    service = msgspec.structs.replace(made.services[0], duplicates=duplicates)
    return msgspec.structs.replace(made, services=(service,))


async def test_the_same_body_in_another_dialect_is_another_turn(tmp_path: Path) -> None:
    async with engines(when_let_go) as (engine,), gateway(tmp_path, policy(endpoint(engine))) as rig:
        chat = asyncio.create_task(rig.once(post(ask(max_tokens=9), extra=SESSION)))
        await until(lambda: len(engine.seen) == 1)
        messages = asyncio.create_task(rig.once(post(ask(max_tokens=9), path="/v1/messages", extra=SESSION)))
        await until(lambda: len(engine.seen) == 2)
        engine.release.set()

        assert [(await chat).status, (await messages).status] == [200, 200]


@pytest.mark.parametrize("streams", [True, False])
async def test_a_turn_asked_twice_is_computed_once(tmp_path: Path, *, streams: bool) -> None:
    async with engines(when_let_go) as (engine,), gateway(tmp_path, policy(endpoint(engine))) as rig:
        request = post(ask(stream=streams), extra=SESSION)
        first = asyncio.create_task(rig.once(request))
        await until(lambda: len(engine.seen) == 1)
        second = asyncio.create_task(rig.once(request))
        refused = await first
        engine.release.set()
        answered = await second
        await rig.idle()

        assert (refused.status, refused.header("x-should-retry")) == (409, "false")
        assert b"superseded" in refused.body
        assert answered.status == 200
        assert b"llo" in answered.body
        assert len(engine.seen) == 1
        assert [(record.outcome, record.detail) for record in rig.records()] == [
            ("cancelled", "superseded"),
            ("complete", ""),
        ]
        assert rig.records()[1].tokens.output == 2
        assert "joined" in rig.records()[1].splices


async def test_a_turn_that_waits_for_a_slot_is_joined_too(tmp_path: Path) -> None:
    async with (
        engines(when_let_go) as (engine,),
        gateway(tmp_path, policy(endpoint(engine, slots=1, queue=4))) as rig,
    ):
        other = asyncio.create_task(rig.once(post(ask(user="other"))))
        await until(lambda: len(engine.seen) == 1)
        request = post(ask(), extra=SESSION)
        first = asyncio.create_task(rig.once(request))
        await until(lambda: rig.worker.house.fleet.services["default/tiny"].waiting == 1)
        second = asyncio.create_task(rig.once(request))
        assert (await first).status == 409
        engine.release.set()
        assert ((await other).status, (await second).status) == (200, 200)
        await rig.idle()
        assert len(engine.seen) == 2


@pytest.mark.parametrize("duplicates", ["Join", "Cancel"])
async def test_an_answer_that_has_begun_is_cancelled_for_the_second(tmp_path: Path, duplicates: str) -> None:
    async with (
        engines(begun) as (engine,),
        gateway(tmp_path, policy(endpoint(engine), duplicates=duplicates)) as rig,
    ):
        request = post(ask(stream=True), extra=SESSION)
        first = asyncio.create_task(rig.once(request))
        await until(lambda: any(service.spec for service in rig.worker.house.fleet.services.values()))
        await until(lambda: len(engine.seen) == 1)
        await asyncio.sleep(0.05)
        answered = await rig.once(request)
        cut = await first
        async with asyncio.timeout(1):
            await engine.seen[0].gone.wait()
        await rig.idle()

        assert answered.status == 200
        assert b"[DONE]" in answered.body
        assert cut.status == 200
        assert b"superseded" in cut.body
        assert b"[DONE]" not in cut.body


@pytest.mark.parametrize(
    ("one", "two", "extra"),
    [
        (ask(user="a"), ask(user="b"), (SESSION, SESSION)),
        (ask(), ask(), (SESSION, "x-claude-code-session-id: two\r\n")),
        (ask(), ask(), ("", "")),
    ],
    ids=["other body", "other session", "no session"],
)
async def test_what_is_not_the_same_turn_runs(
    tmp_path: Path, one: dict[str, object], two: dict[str, object], extra: tuple[str, str]
) -> None:
    async with engines(when_let_go) as (engine,), gateway(tmp_path, policy(endpoint(engine))) as rig:
        tasks = [asyncio.create_task(rig.once(post(body, extra=e))) for body, e in zip((one, two), extra, strict=True)]
        await until(lambda: len(engine.seen) == 2)
        engine.release.set()
        assert [(await task).status for task in tasks] == [200, 200]


async def test_another_credential_or_the_policy_lets_both_run(tmp_path: Path) -> None:
    async with engines(when_let_go) as (engine,), gateway(tmp_path, policy(endpoint(engine))) as rig:
        tasks = [asyncio.create_task(rig.once(post(ask(), key=key, extra=SESSION))) for key in (KEY, OTHER)]
        await until(lambda: len(engine.seen) == 2)
        await rig.load(policy(endpoint(engine), duplicates="Allow"))
        tasks.append(asyncio.create_task(rig.once(post(ask(), extra=SESSION))))
        await until(lambda: len(engine.seen) == 3)
        engine.release.set()
        assert [(await task).status for task in tasks] == [200, 200, 200]


async def test_another_worker_hears_that_its_turn_was_asked_again(tmp_path: Path) -> None:
    async with engines(when_let_go) as (engine,):
        rules = policy(endpoint(engine))
        async with gateway(tmp_path, rules) as one, gateway(tmp_path, rules, worker=1) as two:
            request = post(ask(), extra=SESSION)
            first = asyncio.create_task(one.once(request))
            await until(lambda: len(engine.seen) == 1)
            second = asyncio.create_task(two.once(request))
            assert (await first).status == 409
            await until(lambda: len(engine.seen) == 2)
            async with asyncio.timeout(1):
                await engine.seen[0].gone.wait()
            engine.release.set()
            assert (await second).status == 200


class Mortal(Engine):
    """An engine that dies of one word."""

    def __init__(self) -> None:
        super().__init__(self.live_or_die)

    async def live_or_die(self, engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if b"poison" in seen.body:
            await asyncio.sleep(0.1)  # it had begun to work on it
            await self.stop()
        else:
            await whole(engine, seen, writer)


async def test_a_request_that_killed_two_engines_is_refused(tmp_path: Path) -> None:
    """Each engine takes the port of nobody: its replacement is another incarnation, as after a restart."""
    killer, harmless = post(ask(user="poison")), post(ask(user="bread"))
    async with gateway(tmp_path, policy(endpoint(1))) as rig:
        statuses = []
        for life in range(3):
            engine = await Mortal().start()
            await rig.load(policy(endpoint(engine, incarnation=f"e1-{life}")))
            assert (await rig.once(harmless)).status == 200
            reply = await rig.once(killer)
            statuses.append(reply.status)
            last = len(engine.seen)
            assert (await rig.once(harmless)).status == (502 if life < 2 else 200)
            await engine.stop()
        assert statuses == [502, 502, 422]
        assert b"Two engines died" in reply.body
        assert reply.header("x-should-retry") == "false"
        assert last == 1  # the third engine never saw it
        refused = [record for record in rig.records() if record.detail == "poison"]
        assert len(refused) == 1


async def test_an_answer_frees_a_suspect(tmp_path: Path) -> None:
    """Cut off by an engine that lives on, or there by chance at one death: no reason to refuse."""
    suspect = post(ask(user="poison"))
    async with gateway(tmp_path, policy(endpoint(1))) as rig:
        for life in range(4):
            engine = await Mortal().start()
            await rig.load(policy(endpoint(engine, incarnation=f"e1-{life}")))
            if life % 2:  # this one can bear it
                engine.script = whole
            assert (await rig.once(suspect)).status == (200 if life % 2 else 502)
            await rig.load(policy(endpoint(engine, incarnation=f"e1-{life}", state=State.DRAIN)))
            await engine.stop()


async def test_retries_have_a_budget(tmp_path: Path) -> None:
    """A fleet that fails as a whole gets a tenth more load, not three times as much."""

    async def falls(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with engines(falls, falls, falls) as fleet:
        points = [endpoint(engine, f"e{n}") for n, engine in enumerate(fleet)]
        async with gateway(tmp_path, policy(*points, timeouts=Timeouts(connect=1))) as rig:
            for n in range(60):
                assert (await rig.once(post(ask(user=str(n))))).status == 502
            await rig.idle()
    tries = sum(len(engine.seen) for engine in fleet)
    assert 60 + 10 <= tries <= 60 + 10 + 6 + 3
