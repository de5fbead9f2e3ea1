"""Limits of callers and models through the gateway: who is refused, in which words, and what is given back."""

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    END,
    FIRST,
    KEY,
    OTHER,
    SSE,
    Engine,
    Rig,
    Script,
    Seen,
    ask,
    caller,
    chunk,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    says,
    silent,
    until,
    whole,
)

from stoker.base import clock
from stoker.decide.quota.level import DAY_SECONDS
from stoker.facts.ending import Outcome
from stoker.facts.routes import Caller, Limits, Routes, Service, Timeouts

pytestmark = pytest.mark.anyio


def people(limits: Limits | None = None, **fields: object) -> tuple[Caller, ...]:
    return (caller("alice", KEY, limits=limits or Limits(), **fields), caller("bob", OTHER))


def model(policy: Routes, limits: Limits | None = None, **fields: object) -> Routes:
    service = msgspec.structs.replace(policy.services[0], limits=limits or Limits(), **fields)
    return msgspec.structs.replace(policy, services=(service,))


def spent(rig: Rig, name: str) -> int:
    """Tokens of today, as the table has them."""
    from stoker.decide.quota.level import Demand  # noqa: PLC0415

    return rig.worker.house.limits.table.level(Demand(name, Limits(), ""), now=clock.now()).spent


def running(rig: Rig, name: str) -> int:
    return rig.worker.house.limits.table.running(name)


TEXT = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def asks(dialect: str, **more: object) -> bytes:
    said: dict[str, object] = ask(**more)
    if dialect == "responses":
        said = {"model": "tiny", "input": "hi", **more}
    if dialect == "messages":
        said["max_tokens"] = 16
    return post(said, path=TEXT[dialect])


@pytest.mark.parametrize("dialect", list(TEXT))
async def test_a_refusal_names_the_limit_and_the_wait_in_each_dialect(tmp_path: Path, dialect: str) -> None:
    known = people(Limits(requests_per_minute=2, tokens_per_minute=50_000))
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine, dialects=("chat",)))
        async with gateway(tmp_path, policy, callers=known) as rig:
            good = [await rig.once(asks(dialect, stream=True)) for _ in range(2)]
            bad = await rig.once(asks(dialect, stream=True))

    assert [reply.status for reply in (*good, bad)] == [200, 200, 429]
    assert 28 <= int(bad.header("retry-after")) <= 31
    assert bad.header("x-should-retry") == ""  # it will heal
    error = msgspec.json.decode(bad.body)["error"]
    assert error["type"] == "rate_limit_error"
    assert "requestsPerMinute of 2 for caller alice" in error["message"]
    assert "try again in" in error["message"]
    if dialect == "messages":
        names = ("anthropic-ratelimit-requests-{}", "anthropic-ratelimit-tokens-{}")
        assert bad.header("x-ratelimit-limit-requests") == ""
        assert bad.header(names[0].format("reset")).endswith("Z")
        parts = ("limit", "remaining")
        seen = [[reply.header(name.format(part)) for part in parts] for reply in (good[0], bad) for name in names[:1]]
    else:
        assert error["code"] == "rate_limit_exceeded"
        assert bad.header("x-ratelimit-reset-requests") in ("59s", "1m0s")
        parts = ("limit", "remaining")
        seen = [[reply.header(f"x-ratelimit-{part}-requests") for part in parts] for reply in (good[0], bad)]
        assert int(good[0].header("x-ratelimit-remaining-tokens")) < 50_000
    assert seen == [["2", "1"], ["2", "0"]]


async def test_who_has_no_limit_sees_no_header(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        assert b"ratelimit" not in (await rig.once(post(ask(stream=True)))).head


async def test_a_day_that_is_used_up_is_not_offered_as_a_wait(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        known = people(Limits(tokens_per_day=5))
        async with gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
            assert (await rig.once(post(ask(stream=True)))).status == 200  # one may always begin the day
            reply = await rig.once(post(ask(stream=True)))

    rest = DAY_SECONDS - clock.now() % DAY_SECONDS
    assert reply.status == 429
    assert (reply.header("retry-after"), reply.header("x-should-retry")) == ("120", "false") or rest <= 121
    message = msgspec.json.decode(reply.body)["error"]["message"]
    assert "tokensPerDay of 5 for caller alice" in message
    assert (reply.header("x-ratelimit-limit-tokens"), reply.header("x-ratelimit-remaining-tokens")) == ("5", "0")


async def test_limits_of_a_model_hold_over_its_callers_and_those_of_a_caller_at_it_for_one(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        known = people(models={"default/tiny": Limits(requests_per_minute=1)})
        policy = model(routes(endpoint(engine)), Limits(requests_per_minute=3))
        async with gateway(tmp_path, policy, callers=known) as rig:
            alice = [await rig.once(post(ask(stream=True))) for _ in range(2)]
            bob = [await rig.once(post(ask(stream=True), key=OTHER)) for _ in range(3)]

    assert [reply.status for reply in alice] == [200, 429]
    assert b"caller alice at model default/tiny" in alice[1].body
    assert [reply.status for reply in bob] == [200, 200, 429]  # what alice was refused took nothing from the model
    assert b"for model default/tiny" in bob[2].body


async def test_the_output_cap_of_a_caller_at_a_model(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        known = people(Limits(max_output_tokens=64), models={"default/tiny": Limits(max_output_tokens=8)})
        async with gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
            await rig.once(post(ask(stream=True, max_tokens=1000)))
        assert msgspec.json.decode(engine.seen[0].body)["max_tokens"] == 8


async def half(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(SSE + chunk(FIRST))
    await silent(engine, seen, writer)


NARROW = Limits(tokens_per_minute=10**6, tokens_per_day=10**6, requests_per_minute=10, concurrent=5)
ROOMY = Limits(tokens_per_minute=10**6, tokens_per_day=10**6, requests_per_minute=100, concurrent=5)


@pytest.mark.parametrize(
    ("script", "used", "requests"),
    [
        pytest.param(whole, 7, 1, id="as the engine reported"),
        pytest.param(says(SSE, chunk(FIRST), END), 8 + 1, 1, id="cut: its events and the prompt"),
        pytest.param(says(b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}"), 0, 1, id="an error of the engine"),
        pytest.param(None, 0, 1, id="nobody listens"),
        pytest.param("half", 8 + 1, 1, id="the client leaves in the middle"),
        pytest.param(silent, 8, 1, id="the client leaves before anything"),
        pytest.param("slow", 8, 1, id="a time limit"),
    ],
)
async def test_every_ending_settles(tmp_path: Path, script: Script | str | None, used: int, requests: int) -> None:
    leaves = script in ("half", silent)
    acts = {"half": half, "slow": silent, None: whole}.get(script, script) if not callable(script) else script
    assert callable(acts)
    async with engines(acts) as (engine,):
        at = endpoint(1 if script is None else engine)
        limits = Timeouts(first_byte=0.3) if script == "slow" else None
        async with gateway(tmp_path, routes(at, timeouts=limits), callers=people(NARROW)) as rig:
            request = post(ask(stream=True))
            if leaves:
                client = await rig.connect()
                client.send(request)
                await until(lambda: len(engine.seen) == 1)
                assert running(rig, "alice") == 1
                assert spent(rig, "alice") > 100  # an answer is expected
                if script == "half":
                    await client.reader.readuntil(b"data: ")
                client.close()
            else:
                await rig.once(request)
            record = await rig.record()
            await rig.idle()
            assert (running(rig, "alice"), spent(rig, "alice")) == (0, used)
            assert record.tokens.prompt + record.tokens.output == used  # the ledger says the same
            assert record.tokens.estimated == (used not in (0, 7))
            left = rig.worker.house.limits.table.level(
                rig.worker.house.limits.demands(people(NARROW)[0], policy_service(rig))[0], now=clock.now()
            )
            assert left.requests == pytest.approx(10 - requests, abs=0.6)


def policy_service(rig: Rig) -> Service:
    return rig.worker.house.fleet.services["default/tiny"].spec


async def test_what_we_refuse_ourselves_was_no_request(tmp_path: Path) -> None:
    """No endpoint, a full queue, a prompt that does not fit: after the limits had let it in."""
    async with engines(silent) as (engine,):
        policy = routes(endpoint(engine, slots=1, queue=0))
        async with gateway(tmp_path, policy, callers=people(ROOMY)) as rig:
            client = await rig.connect()
            client.send(post(ask(stream=True)))
            await until(lambda: len(engine.seen) == 1)
            taken = spent(rig, "alice")
            for _ in range(20):
                assert (await rig.once(post(ask(stream=True)))).status == 429
            assert (running(rig, "alice"), spent(rig, "alice")) == (1, taken)
            remaining = int((await rig.once(post(ask(stream=True)))).header("x-ratelimit-remaining-requests"))
            assert remaining >= 97
            client.close()
            await rig.idle()


async def test_what_begins_together_is_counted_together(tmp_path: Path) -> None:
    """Long answers cannot all begin before the first is counted: what they may use is reserved."""
    known = people(Limits(tokens_per_minute=1000))
    async with engines(silent) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
        clients = [await rig.connect() for _ in range(8)]
        for client in clients:
            client.send(post(ask(stream=True)))
        await until(lambda: len(rig.records()) + len(engine.seen) == 8)
        assert 2 <= len(engine.seen) <= 4  # a prompt of two tokens each, and what its answer may have
        for client in clients:
            client.close()
        await rig.idle()
        assert spent(rig, "alice") < 100


async def test_every_answer_of_one_request_is_reserved(tmp_path: Path) -> None:
    known = people(Limits(tokens_per_minute=100_000))
    async with engines(silent) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
        reserved = []
        for count in (1, 4):
            client = await rig.connect()
            client.send(post(ask(stream=True, n=count, max_tokens=1000)))
            await until(lambda: len(engine.seen) > len(reserved))
            reserved.append(spent(rig, "alice"))
            client.close()
            await rig.idle()
        assert reserved[1] > 3 * reserved[0]


async def test_a_models_requests_at_once(tmp_path: Path) -> None:
    async with engines(silent) as (engine,):
        policy = model(routes(endpoint(engine)), Limits(concurrent=2))
        async with gateway(tmp_path, policy) as rig:
            clients = [await rig.connect() for _ in range(2)]
            for client, key in zip(clients, (KEY, OTHER), strict=True):
                client.send(post(ask(stream=True), key=key))
            await until(lambda: len(engine.seen) == 2)
            reply = await rig.once(post(ask(stream=True)))
            assert reply.status == 429
            assert b"concurrent of 2 for model default/tiny" in reply.body
            clients[0].close()
            await until(lambda: running(rig, "model default/tiny") == 1)
            engine.script = whole
            assert (await rig.once(post(ask(stream=True)))).status == 200
            clients[1].close()
            await rig.idle()


async def test_how_many_may_wait(tmp_path: Path) -> None:
    async with engines(silent) as (engine,):
        policy = model(routes(endpoint(engine, slots=1, queue=50)), max_queued=2)
        async with gateway(tmp_path, policy) as rig:
            clients = [await rig.connect() for _ in range(3)]
            for count, client in enumerate(clients):
                client.send(post(ask(stream=True)))
                await until(lambda: len(rig.worker.house.active) == count + 1)  # noqa: B023
            reply = await rig.once(post(ask(stream=True)))
            assert (reply.status, msgspec.json.decode(reply.body)["error"]["code"]) == (429, "queue_full")
            assert reply.header("retry-after")
            clients[2].close()
            await until(lambda: len(rig.worker.house.active) == 2)
            clients.append(await rig.connect())
            clients[3].send(post(ask(stream=True)))
            await until(lambda: len(rig.worker.house.active) == 3)
            engine.script = whole
            engine.release.set()
            clients[0].close()
            for client in (clients[1], clients[3]):
                assert (await client.reply()).status == 200
                client.close()
            await rig.idle()
            assert rig.worker.house.fleet._shared.taken("queue default/tiny") == 0


async def test_a_person_takes_the_place_of_a_batch_in_a_full_queue(tmp_path: Path) -> None:
    async with engines(silent) as (engine,):
        batch = endpoint(engine, slots=1, queue=1)
        base = routes(batch)
        other = msgspec.structs.replace(
            base.services[0], name="default/bulk", models=("bulk",), interactive=False, max_queued=1
        )
        policy = msgspec.structs.replace(base, services=(base.services[0], other), max_concurrent=3)
        async with gateway(tmp_path, policy) as rig:
            first, bulk, person = [await rig.connect() for _ in range(3)]
            first.send(post(ask(stream=True)))
            await until(lambda: len(engine.seen) == 1)
            bulk.send(post(ask(stream=True, model="bulk")))
            await until(lambda: len(rig.worker.house.active) == 2)
            third = await rig.connect()
            third.send(post(ask(stream=True)))
            await until(lambda: len(rig.worker.house.active) == 3)
            refused = await rig.once(post(ask(stream=True, model="bulk")))
            assert refused.status in (429, 503)  # nobody stands behind it
            person.send(post(ask(stream=True, max_tokens=3), key=OTHER))
            shed = await asyncio.wait_for(bulk.reply(), 5)
            assert (shed.status, shed.header("retry-after") != "") == (429, True)
            assert msgspec.json.decode(shed.body)["error"]["code"] == "queue_full"
            assert [record.detail for record in rig.records()][-2:] == ["shed", "queue"]
            for client in (first, bulk, third, person):
                client.close()
            await rig.idle()


async def test_people_get_the_slot_before_batches_that_came_first(tmp_path: Path) -> None:
    order: list[str] = []

    async def notes(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        order.append(msgspec.json.decode(seen.body)["user"])
        if len(order) == 1:
            await silent(engine, seen, writer)
        await whole(engine, seen, writer)

    async with engines(notes) as (engine,):
        base = routes(endpoint(engine, slots=1, queue=9))
        other = msgspec.structs.replace(base.services[0], name="default/bulk", models=("bulk",), interactive=False)
        known = (caller("alice", KEY), caller("bob", OTHER, priority=50))
        policy = msgspec.structs.replace(base, services=(base.services[0], other))
        async with gateway(tmp_path, policy, callers=known) as rig:
            clients = []
            for user, name, key in (
                ("first", "tiny", KEY),
                ("batch", "bulk", KEY),
                ("person", "tiny", KEY),
                ("dear", "tiny", OTHER),
            ):
                client = await rig.connect()
                clients.append(client)
                client.send(post(ask(stream=True, model=name, user=user), key=key))
                await until(lambda: len(rig.worker.house.active) == len(clients))
            engine.release.set()
            for client in clients:
                assert (await asyncio.wait_for(client.reply(), 5)).status == 200
                client.close()
            await rig.idle()
    assert order == ["first", "dear", "person", "batch"]


async def test_a_model_that_is_full_of_waiting_batches_takes_a_person(tmp_path: Path) -> None:
    """The batch callers fill the model's requests at once; whoever stands last of them makes room."""
    async with engines(silent) as (engine,):
        known = (caller("alice", KEY, priority=60), caller("bob", OTHER, priority=-60))
        policy = model(routes(endpoint(engine, slots=1, queue=9)), Limits(concurrent=3))
        async with gateway(tmp_path, policy, callers=known) as rig:
            clients = [await rig.connect() for _ in range(3)]
            for count, client in enumerate(clients):
                client.send(post(ask(stream=True), key=OTHER))
                await until(lambda: len(rig.worker.house.active) == count + 1)  # noqa: B023
            dear = await rig.connect()
            dear.send(post(ask(stream=True)))
            assert (await asyncio.wait_for(clients[2].reply(), 5)).status == 429
            await until(lambda: running(rig, "model default/tiny") == 3)
            assert len(rig.worker.house.active) == 3
            for client in (*clients, dear):
                client.close()
            await rig.idle()
            assert running(rig, "model default/tiny") == 0


async def test_the_day_is_known_after_everything_was_lost_but_the_ledger(tmp_path: Path) -> None:
    known = people(Limits(tokens_per_day=1000))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
        for _ in range(4):
            await rig.once(post(ask(stream=True)))
        await rig.idle()
    (tmp_path / "run" / "limits").unlink()
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
        assert spent(rig, "alice") == 4 * 7
        assert spent(rig, "model default/tiny") == 4 * 7
        tighter = people(Limits(tokens_per_day=28))
        from stoker.facts.routes import Callers, seal  # noqa: PLC0415

        (tmp_path / "callers.json").write_bytes(seal(Callers(generation=2, callers=tighter)))
        await until(lambda: rig.worker.live().callers_generation == 2)
        assert (await rig.once(post(ask(stream=True)))).status == 429


async def test_usage_before_a_limit_came_counts(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=people()) as rig:
        await rig.once(post(ask(stream=True)))
        await rig.load(model(routes(endpoint(engine)), Limits(tokens_per_day=1000)))
        await until(lambda: spent(rig, "model default/tiny") == 7)


async def test_a_ledger_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"no database at all, but long enough to look at" * 100)
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        assert "ledger.db" in rig.worker.live().limits_problem
        assert (await rig.once(post(ask(stream=True)))).status == 200
        assert b'stoker_limits_ok{worker="0"} 0' in rig.worker._metrics()


async def test_outcome_of_a_limit_is_in_the_ledger(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        known = people(Limits(requests_per_minute=1))
        async with gateway(tmp_path, routes(endpoint(engine)), callers=known) as rig:
            with contextlib.suppress(ConnectionError):
                for _ in range(2):
                    await rig.once(post(ask(stream=True)))
            record = await rig.record(2)
    assert (record.outcome, record.detail, record.status) == (Outcome.REJECTED, "requests_per_minute", 429)
