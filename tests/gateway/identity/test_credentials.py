"""What becomes of requests and open streams when their credential expires, is revoked, or its owner is renamed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.gateway.identity.issuer import AUDIENCE, NAME, Issuer, key_set, token
from tests.gateway.rig import (
    CHUNK,
    DONE,
    END,
    FINISH,
    FIRST,
    KEY,
    OTHER,
    SSE,
    USAGE,
    Client,
    Engine,
    Reply,
    Rig,
    Seen,
    ask,
    caller,
    chunk,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    until,
    whole,
)

from stoker.base import clock
from stoker.facts.door import Auth, Door, Jwt
from stoker.facts.ending import Outcome
from stoker.facts.routes import Caller, Callers, Subject, seal

pytestmark = pytest.mark.anyio


async def held(engine: Engine, _: Seen, writer: asyncio.StreamWriter) -> None:
    """Begin, then go on only when let go."""
    writer.write(SSE + chunk(FIRST))
    await engine.release.wait()
    for event in (CHUNK.format(text="o").encode(), FINISH, USAGE, DONE):
        writer.write(chunk(event))
    writer.write(END)


def publish(rig: Rig, people: Sequence[Caller], generation: int) -> None:
    (rig.folder / "callers.json").write_bytes(seal(Callers(generation=generation, callers=tuple(people))))


async def opened(rig: Rig, key: str = KEY) -> Client:
    client = await rig.connect()
    client.send(post(ask(stream=True), key=key))
    await client.reader.readuntil(b"\r\n\r\n")
    await client.reader.readuntil(b"\n\n\r\n")  # the first event is here
    return client


async def rest(client: Client) -> bytes:
    return await asyncio.wait_for(client.reader.readuntil(b"0\r\n\r\n"), 10)


def error(reply: Reply) -> dict[str, str]:
    return msgspec.json.decode(reply.body)["error"]


def spoilt(name: str, how: str) -> tuple[Caller, ...]:
    alice = caller("alice", KEY)
    (key,) = alice.keys
    changed = {
        "revoked": msgspec.structs.replace(key, revoked=True),
        "expired": msgspec.structs.replace(key, expires_at=clock.now()),
    }
    kept = () if how == "gone" else (msgspec.structs.replace(alice, keys=(changed[how],)),)
    return (*kept, caller("bob", OTHER)) if name == "alice" else ()


@pytest.mark.parametrize("how", ["revoked", "expired", "gone"])
async def test_an_open_stream_outlives_its_credential_and_the_next_request_does_not(tmp_path: Path, how: str) -> None:
    async with engines(held) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        client = await opened(rig)
        publish(rig, spoilt("alice", how), 2)
        await until(lambda: rig.worker.live().callers_generation == 2)
        reply = await rig.once(post(ask(stream=True)))
        engine.release.set()
        assert DONE in await rest(client)

        assert (reply.status, reply.header("x-should-retry")) == (401, "false")
        if how == "gone":
            assert error(reply)["message"] == "The API key is not valid."
        else:
            assert "`stoker key create alice`" in error(reply)["message"]
        outcomes = {r.outcome for r in rig.records()}
        assert outcomes == {Outcome.COMPLETE, Outcome.REJECTED}


@pytest.mark.parametrize("owner", ["gateway", "caller"])
async def test_a_revocation_cuts_streams_where_its_owner_wants_that(tmp_path: Path, owner: str) -> None:
    door = Door(auth=Auth(cut_revoked=owner == "gateway"))
    people = spoilt("alice", "revoked")
    if owner == "caller":
        people = tuple(msgspec.structs.replace(p, cut_revoked=True) for p in people)
    async with engines(held) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        client, other = await opened(rig), await opened(rig, OTHER)
        publish(rig, people, 2)
        said = await rest(client)
        assert b'"code":"credential_revoked"' in said
        assert b"[DONE]" not in said
        await until(engine.seen[0].gone.is_set)  # the engine is not left to write for nobody
        engine.release.set()
        assert DONE in await rest(other)
        record = await rig.record()
        assert (record.outcome, record.detail, record.caller) == (Outcome.CANCELLED, "revoked", "alice")
        await rig.idle()


async def test_an_expiry_cuts_nothing_even_where_revocations_cut(tmp_path: Path) -> None:
    policy = routes(door=Door(auth=Auth(cut_revoked=True)))
    async with engines(held) as (engine,):
        policy = msgspec.structs.replace(routes(endpoint(engine)), door=policy.door)
        async with gateway(tmp_path, policy) as rig:
            client = await opened(rig)
            publish(rig, spoilt("alice", "expired"), 2)
            await until(lambda: rig.worker.live().callers_generation == 2)
            engine.release.set()
            assert DONE in await rest(client)


async def test_how_to_renew_is_the_owners_text(tmp_path: Path) -> None:
    door = Door(auth=Auth(renewal="Ask the platform desk."))
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine), door=door)
        async with gateway(tmp_path, policy, callers=spoilt("alice", "expired")) as rig:
            assert error(await rig.once(post(ask())))["message"] == "The API key has expired. Ask the platform desk."


async def test_engines_hear_who_asks_from_us_alone(tmp_path: Path) -> None:
    lies = "x-stoker-caller: root\r\nx-forwarded-user: root\r\nx-stoker-key: k\r\nx-api-key: sk-test-alice\r\n"
    async with engines(whole, whole) as (mine, outside):
        for engine, spec in (
            (mine, endpoint(mine)),
            (outside, msgspec.structs.replace(endpoint(outside), engine="external")),
        ):
            async with gateway(tmp_path / str(engine.port), routes(spec)) as rig:
                await rig.once(post(ask(stream=True), extra=lies))
                head = engine.seen[0].head.lower()
                assert b"root" not in head
                assert KEY.encode() not in head
                assert head.count(b"x-stoker-caller") == (engine is mine)
                assert (b"x-stoker-caller: alice\r\n" in head) is (engine is mine)
                assert b"x-request-id: gateway-0-" in head
                assert (await rig.record()).caller == "alice"


async def test_tokens_of_an_issuer_at_the_door(tmp_path: Path) -> None:
    """The keys come from the issuer while clients wait; they go on when it is gone."""
    async with engines(whole) as (engine,):
        async with Issuer().serving() as made:
            jwt = Jwt(issuer=NAME, audience=(AUDIENCE,), jwks_uri=made.uri)
            policy = routes(endpoint(engine), door=Door(auth=Auth(api_keys=False, jwt=jwt)))
            people = (Caller(name="ann", subjects=(Subject(id="ann-sub", subject="ann"),), services=("default/tiny",)),)
            async with gateway(tmp_path, policy, callers=people) as rig:
                await until(lambda: (tmp_path / "run").exists() and any((tmp_path / "run").glob("jwks-*")))
                shown = token()
                assert (await rig.once(post(ask(stream=True), key=shown))).body.endswith(DONE)
                assert (await rig.once(post(ask(stream=True), key=KEY))).status == 401
                other = await rig.once(post(ask(stream=True), key=token(sub="stranger")))
                assert (other.status, other.header("x-should-retry")) == (403, "false")
                made.body = key_set("rs-2")
                record = await rig.record()
                assert (record.caller, record.key_id) == ("ann", "ann-sub")
                assert b"x-stoker-caller: ann\r\n" in engine.seen[0].head
        async with gateway(tmp_path, policy, callers=people) as rig:  # the issuer is down now
            assert (await rig.once(post(ask(stream=True), key=shown))).body.endswith(DONE)
            unknown = await rig.once(post(ask(stream=True), key=token("rs-2")))
            assert (unknown.status, unknown.header("retry-after")) == (503, "1")
            await until(lambda: "signing keys of" in rig.worker.live().routes_error)
