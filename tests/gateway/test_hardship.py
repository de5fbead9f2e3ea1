"""What users have reported of other gateways, caused here on purpose."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from tests.gateway.rig import (
    DONE,
    END,
    FINISH,
    FIRST,
    KEY,
    SECOND,
    SSE,
    USAGE,
    WHOLE,
    Engine,
    Reply,
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

from stoker.facts.routes import Limits

_T = TypeVar("_T")
ALL = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def request(path: str, **fields: object) -> dict[str, object]:
    """Ask the same in each dialect."""
    said = {"input": "hi"} if path.endswith("responses") else {"messages": [{"role": "user", "content": "hi"}]}
    limit = {"max_output_tokens": 9} if path.endswith("responses") else {"max_tokens": 9}
    return {"model": "tiny", **said, **limit, **fields}


async def together(things: list[Awaitable[_T]]) -> list[_T]:
    tasks = [asyncio.ensure_future(thing) for thing in things]
    return [await task for task in tasks]


async def begins(_: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
    """Say a first word, then nothing until the gateway leaves."""
    writer.write(SSE + chunk(FIRST))
    await seen.gone.wait()


async def never(_: Engine, seen: Seen, __: asyncio.StreamWriter) -> None:
    await seen.gone.wait()


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(("streams", "script"), [(True, begins), (True, never), (False, never)])
async def test_a_client_that_leaves_frees_the_engine_in_every_dialect(
    tmp_path: Path, path: str, *, streams: bool, script: object
) -> None:
    async with (
        engines(script) as (engine,),  # type: ignore[arg-type]
        gateway(tmp_path, routes(endpoint(engine, slots=1, queue=4))) as rig,
    ):
        running, waiting = await rig.connect(), await rig.connect()
        running.send(post(request(path, stream=streams), path=path))
        await until(lambda: len(engine.seen) == 1)
        waiting.send(post(request(path, stream=streams, user="waits"), path=path))
        service = rig.worker.house.fleet.services["default/tiny"]
        await until(lambda: service.waiting == 1)
        waiting.close()
        await until(lambda: service.waiting == 0)
        running.close()
        async with asyncio.timeout(1):
            await engine.seen[0].gone.wait()
        await rig.idle()
        await until(lambda: len(rig.records()) == 2)
        assert {record.outcome for record in rig.records()} == {"cancelled"}
        assert len(engine.seen) == 1


async def test_bad_prompts_do_not_take_a_fleet_down(tmp_path: Path) -> None:
    async def picky(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if b"bad" in seen.body:
            writer.write(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\n{}")
        else:
            await whole(engine, seen, writer)

    async with engines(picky) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        refused = [(await rig.once(post(ask(user="bad")))).status for _ in range(25)]
        assert refused == [400] * 25
        assert (await rig.once(post(ask()))).status == 200


async def test_slots_of_a_caller_do_not_leak(tmp_path: Path) -> None:
    few = (caller("alice", KEY, limits=Limits(concurrent=2)),)
    async with engines(begins) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=few) as rig:
        for turn in range(10):
            client = await rig.connect()
            client.send(post(ask(stream=True)))
            await until(lambda turn=turn: len(engine.seen) == turn + 1)  # type: ignore[misc]
            client.close()
        await rig.idle()
        engine.script = whole
        assert (await rig.once(post(ask()))).status == 200


@pytest.mark.timeout(60)
async def test_a_thousand_streams_at_once(tmp_path: Path) -> None:
    async def slow(engine: Engine, _: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(FIRST))
        await engine.release.wait()
        writer.write(chunk(SECOND + FINISH + USAGE + DONE) + END)

    count = 1000
    async with engines(slow) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        tasks = [asyncio.ensure_future(_long(rig.port, post(ask(stream=True)))) for _ in range(count)]
        await until(lambda: engine.running == count, limit=40)
        engine.release.set()
        bodies = [await task for task in tasks]
        await until(lambda: not rig.worker.house.active, limit=20)
        assert len(rig.records()) == count
    assert all(body.endswith(DONE) for body in bodies)


async def _long(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data.replace(b"host: x\r\n", b"host: x\r\nconnection: close\r\n"))
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    raw = await reader.read()
    writer.close()
    body, rest = b"", raw
    while (size := int(rest.partition(b"\r\n")[0], 16)) > 0:
        start = rest.index(b"\r\n") + 2
        body, rest = body + rest[start : start + size], rest[start + size + 2 :]
    return body


@pytest.mark.parametrize("path", ALL)
async def test_the_first_word_is_not_held_back(tmp_path: Path, path: str) -> None:
    async with engines(begins) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        client = await rig.connect()
        client.send(post(request(path, stream=True), path=path))
        async with asyncio.timeout(5):
            await client.reader.readuntil("Hé".encode())
        client.close()
        await rig.idle()
        assert engine.seen


async def test_every_field_reaches_the_engine(tmp_path: Path) -> None:
    extras = {
        "user": "u", "store": False, "cache_salt": "s", "priority": 3, "min_p": 0.1, "top_k": 5, "seed": 7,
        "repetition_penalty": 1.1, "chat_template_kwargs": {"a": None}, "vllm_xargs": {"x": 1}, "temperature": 0.7,
        "kv_transfer_params": {"y": [1, 2]}, "structured_outputs": {"regex": "a+"}, "stop_token_ids": [1, 2],
        "return_token_ids": True, "unknown_field_x": {"deep": [{"er": 1.0}]}, "logit_bias": {"5": -1}, "tools": None,
    }  # fmt: skip
    sent = msgspec.json.encode(ask(**extras, max_tokens=9, stream=True, stream_options={"include_usage": True}))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        await rig.once(post(sent))
    assert engine.seen[0].body == sent


async def test_an_engine_that_answers_before_it_has_read(tmp_path: Path) -> None:
    """The rest of the request is still in that connection: it is never used for the next one."""

    async def hasty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\n{}")
        await asyncio.sleep(0.5)
        writer.close()

    connections: list[bytes] = []
    server = await asyncio.start_server(hasty, "127.0.0.1", 0)
    large = ask(messages=[{"role": "user", "content": "x" * (12 << 20)}])
    async with gateway(tmp_path, routes(endpoint(server.sockets[0].getsockname()[1]))) as rig:
        replies = [await rig.once(post(large)) for _ in range(2)]
        await rig.idle()
    server.close()
    assert [reply.status for reply in replies] == [413, 413]
    assert len(connections) == 2


async def test_interim_answers_are_stepped_over(tmp_path: Path) -> None:
    async def talkative(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n")
        writer.write(SSE + chunk(WHOLE) + END)

    async with engines(talkative) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        for _ in range(2):
            reply = await rig.once(post(ask(stream=True, stream_options={"include_usage": True})))
            assert (reply.status, reply.body) == (200, WHOLE)


@pytest.mark.parametrize("path", ALL)
async def test_bytes_that_are_no_text(tmp_path: Path, path: str) -> None:
    """Neither a client's nor an engine's invalid UTF-8 does more than spoil its own answer."""

    async def garbled(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(FIRST.replace("é".encode(), b"\xff\xfe")) + chunk(FINISH + DONE) + END)

    spoilt = msgspec.json.encode(request(path, stream=True)).replace(b'"hi"', b'"h\xff"')
    async with engines(garbled) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        answered: Reply = await rig.once(post(request(path, stream=True), path=path))
        refused = await rig.once(post(spoilt, path=path))
        assert answered.complete
        assert refused.complete
        engine.script = whole
        assert (await rig.once(post(request(path), path=path))).status == 200
        await rig.idle()


async def test_a_character_cut_between_two_reads(tmp_path: Path) -> None:
    async def cut(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        at = WHOLE.index("é".encode()) + 1
        writer.write(SSE + chunk(WHOLE[:at]))
        await asyncio.sleep(0.05)
        writer.write(chunk(WHOLE[at:]) + END)

    async with engines(cut) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=True, stream_options={"include_usage": True})))
        message = await rig.once(post(request(ALL[2]), path=ALL[2]))
    assert reply.body == WHOLE
    assert "Héllo" in message.body.decode()
