"""A large request whose translation hangs holds nobody up; the process that translates it may die."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
from tests.gateway.rig import END, Rig, ask, chunk, endpoint, engines, gateway, post, routes, says, until, whole

from stoker.facts.ending import Outcome

WORDS = "wörter " * 400_000
LARGE: dict[str, object] = {
    "model": "tiny",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": WORDS}],
}


def translator(rig: Rig) -> int:
    return rig.worker.house.aside.pid


async def hung(rig: Rig) -> int:
    """Have a translator, and stop it."""
    assert (await rig.once(post(LARGE, path="/v1/messages"))).status == 200
    pid = translator(rig)
    os.kill(pid, signal.SIGSTOP)
    return pid


async def test_a_large_request_is_translated_while_others_are_answered(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        pid = await hung(rig)
        waits = asyncio.create_task(rig.once(post({**LARGE, "stream": True}, path="/v1/messages")))
        await until(lambda: len(rig.worker.house.active) == 1)
        small = await rig.once(post(ask()))
        also = await rig.once(post({**LARGE, "messages": [{"role": "user", "content": "hi"}]}, path="/v1/messages"))
        assert (small.status, also.status, waits.done()) == (200, 200, False)

        os.kill(pid, signal.SIGCONT)
        large = await waits
        await rig.idle()
        record = await rig.record(4)

    assert large.body.count(b"event: message_stop") == 1
    assert record.outcome is Outcome.COMPLETE
    assert "messages>chat" in record.splices
    sent = msgspec.json.decode(engine.seen[-1].body)
    assert sent["messages"] == [{"role": "user", "content": WORDS}]
    assert (sent["max_tokens"], sent["stream"]) == (99, True)


async def test_a_client_that_leaves_meanwhile_takes_nothing_along(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        pid = await hung(rig)
        client = await rig.connect()
        client.send(post(LARGE, path="/v1/messages"))
        await until(lambda: len(rig.worker.house.active) == 1)
        client.close()
        await rig.idle()
        os.kill(pid, signal.SIGCONT)
        record = await rig.record(2)

        assert (await rig.once(post(LARGE, path="/v1/messages"))).status == 200
    assert record.outcome is Outcome.CANCELLED
    assert len(engine.seen) == 2


async def test_a_translator_that_dies_fails_one_request_and_says_so(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        pid = await hung(rig)
        waits = asyncio.create_task(rig.once(post(LARGE, path="/v1/messages")))
        await until(lambda: len(rig.worker.house.active) == 1)
        os.kill(pid, signal.SIGKILL)
        failed = await waits
        await rig.idle()
        record = await rig.record(2)
        again = await rig.once(post(LARGE, path="/v1/messages"))

    assert (failed.status, failed.header("retry-after"), again.status) == (503, "1", 200)
    assert (record.outcome, record.detail) == (Outcome.REJECTED, "translation")
    assert len(engine.seen) == 2


async def test_what_cannot_be_said_is_refused_as_it_is_for_a_small_one(tmp_path: Path) -> None:
    wrong = {**LARGE, "messages": [{"role": "user", "content": WORDS}, {"role": "user", "content": 7}]}
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        refused = await rig.once(post(wrong, path="/v1/messages"))
        await rig.idle()
        record = await rig.record()

    assert refused.status == 400
    assert b"content" in refused.body
    assert (record.outcome, record.detail) == (Outcome.REJECTED, "dialect")
    assert engine.seen == []


async def test_a_large_prompt_is_estimated_rather_than_counted(tmp_path: Path) -> None:
    policy = routes(endpoint(1, engine="llama.cpp"))
    async with gateway(tmp_path, policy) as rig:
        counted = await rig.once(post(LARGE, path="/v1/messages/count_tokens"))

        assert counted.status == 200
        assert msgspec.json.decode(counted.body)["input_tokens"] > 100_000
        assert translator(rig) == 0


async def test_a_large_request_passes_as_it_is_but_for_its_cap(tmp_path: Path) -> None:
    body = msgspec.json.encode({**LARGE, "max_tokens": 9999, "seed": 7})
    pieces = [body[at : at + 70_000] for at in range(0, len(body), 70_000)]
    head, _, _ = post(b"").partition(b"content-length")
    chunked = b"".join(chunk(piece) for piece in pieces) + END
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine, stream_upstream=False))) as rig:
        engine.script = says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        told = await rig.once(post(body))
        also = await rig.once(head + b"transfer-encoding: chunked\r\n\r\n" + chunked)
        await rig.idle()
        record = await rig.record(2)

    assert (told.status, also.status) == (200, 200)
    assert [seen.body for seen in engine.seen] == [body.replace(b":9999", b":256")] * 2
    assert record.splices == ("max_tokens",)


async def test_a_large_body_that_is_no_json_is_refused(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        refused = await rig.once(post(msgspec.json.encode(LARGE)[:-1]))
        too_large = await rig.once(post(b"{" + b" " * (65 << 20)))
        await rig.idle()

    assert (refused.status, too_large.status) == (400, 413)
    assert engine.seen == []


async def test_a_client_that_leaves_before_its_large_request_was_read_leaves_nothing(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        for _ in range(3):
            client = await rig.connect()
            client.send(post(LARGE))
            await client.writer.drain()
            client.close()
        await until(lambda: not rig.worker.house.active)

        assert (await rig.once(post(LARGE))).status == 200
        await rig.idle()
