"""What reaches the client, the engine and the ledger, byte by byte."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    DONE,
    END,
    FINISH,
    FIRST,
    OTHER,
    SECOND,
    SSE,
    USAGE,
    WHOLE,
    Engine,
    Script,
    Seen,
    ask,
    chunk,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    says,
    silent,
    whole,
)

from stoker.facts.ending import Outcome
from stoker.facts.routes import Timeouts

pytestmark = pytest.mark.anyio


async def test_stream_is_forwarded_byte_for_byte_without_the_usage_nobody_asked_for(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=True)))

        assert (reply.status, reply.body, reply.complete) == (200, FIRST + SECOND + FINISH + DONE, True)
        record = await rig.record()
        assert (record.outcome, record.caller, record.service) == (Outcome.COMPLETE, "alice", "default/tiny")
        assert (record.tokens.prompt, record.tokens.cached, record.tokens.output) == (5, 3, 2)
        assert not record.tokens.estimated
        assert len(record.blocks) == 1
        assert record.splices == ("max_tokens", "stream_options")
        sent = msgspec.json.decode(engine.seen[0].body)
        assert sent["max_tokens"] == 256
        assert sent["stream_options"] == {"include_usage": True}
        assert b"sk-test" not in engine.seen[0].head
        await rig.idle()


async def test_usage_is_kept_for_who_asked(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=True, stream_options={"include_usage": True}, max_tokens=7)))

        assert reply.body == WHOLE
        assert (await rig.record()).splices == ()
        assert b'"max_tokens":7' in engine.seen[0].body


async def test_whole_answer_is_put_together_from_a_stream(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=False)))

        answer = msgspec.json.decode(reply.body)
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Héllo"}
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 2
        assert msgspec.json.decode(engine.seen[0].body)["stream"] is True


async def test_credential_goes_in_and_the_callers_key_stays_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("engine-secret\n")
    spec = endpoint(0, credential_file="secret", upstream_model="real")
    async with engines(whole) as (engine,):
        spec = msgspec.structs.replace(spec, origin=f"http://127.0.0.1:{engine.port}")
        async with gateway(tmp_path, routes(spec)) as rig:
            await rig.once(post(ask(stream=True)))

        assert b"authorization: Bearer engine-secret\r\n" in engine.seen[0].head
        assert b'"model":"real"' in engine.seen[0].body
        assert b"sk-test" not in engine.seen[0].head + engine.seen[0].body


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_cut_anywhere_the_bytes_are_the_same(tmp_path: Path, size: int) -> None:
    wire = SSE + chunk(WHOLE) + END
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
    script = says(*pieces)
    async with engines(script) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=True)))

        assert (reply.body, reply.complete) == (FIRST + SECOND + FINISH + DONE, True)


CRLF = (FIRST + SECOND + FINISH).replace(b"\n", b"\r\n")
COMMENTED = b": hello\n\n" + FIRST + b"data: {\ndata: }\n\n" + FINISH


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        pytest.param(CRLF + DONE, Outcome.COMPLETE, id="lines that end in CRLF"),
        pytest.param(COMMENTED + DONE, Outcome.COMPLETE, id="a comment and an event of two data lines"),
        pytest.param(FIRST + FINISH, Outcome.COMPLETE, id="finished and ended, without a terminator"),
    ],
)
async def test_unusual_streams_pass_as_they_are(tmp_path: Path, events: bytes, outcome: Outcome) -> None:
    async with (
        engines(says(SSE, chunk(events), END)) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post(ask(stream=True)))

        assert (reply.body, reply.complete) == (events, True)
        assert (await rig.record()).outcome is outcome


HALF = FIRST + SECOND[:40]


@pytest.mark.parametrize(
    ("script", "kept", "detail"),
    [
        pytest.param(says(SSE, chunk(FIRST), END), FIRST, "clean", id="body ends cleanly without a finish"),
        pytest.param(says(SSE, chunk(FIRST), close=True), FIRST, "clean", id="connection closes"),
        pytest.param(says(SSE, chunk(HALF), END), FIRST, "clean", id="half an event"),
        pytest.param(says(SSE, chunk(FIRST)[:-10], close=True), b"", "clean", id="half a chunk"),
        pytest.param(says(SSE, chunk(FIRST + FINISH), close=True), FIRST + FINISH, "clean", id="closed after finish"),
        pytest.param(says(SSE, chunk(FIRST), b"garbage\r\n\r\n"), FIRST, "clean", id="no HTTP any more"),
    ],
)
async def test_cut_answer_ends_in_an_error_and_never_in_a_terminator(
    tmp_path: Path, script: Script, kept: bytes, detail: str
) -> None:
    async with engines(script) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=True)))

        assert b"[DONE]" not in reply.body
        assert reply.body.startswith(kept)
        last = (
            msgspec.json.decode(reply.body[len(kept) :].removeprefix(b"data: "))
            if kept
            else msgspec.json.decode(reply.body)
        )
        assert last["error"]["code"] == "upstream_truncated"
        assert reply.complete
        record = await rig.record()
        assert (record.outcome, record.detail) == (Outcome.TRUNCATED, detail)
        whole_reply = await rig.once(post(ask()))
        assert (whole_reply.status, msgspec.json.decode(whole_reply.body)["error"]["code"]) == (
            502,
            "upstream_truncated",
        )
        await rig.idle()


async def test_reset_in_the_middle_is_told(tmp_path: Path) -> None:
    async with (
        engines(says(SSE, chunk(FIRST), reset=True)) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post(ask(stream=True)))

        assert b"upstream_truncated" in reply.body
        assert (await rig.record()).outcome is Outcome.TRUNCATED


async def test_error_event_passes_and_is_recorded(tmp_path: Path) -> None:
    error = b'data: {"error":{"code":400,"message":"context","type":"exceed_context_size_error"}}\n\n'
    async with (
        engines(says(SSE, chunk(FIRST + error), END)) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post(ask(stream=True)))

        assert reply.body == FIRST + error
        assert ((await rig.record()).outcome, (await rig.record()).detail) == (Outcome.ERROR, "in_band")
        together = await rig.once(post(ask()))
        assert together.status == 400
        assert b"context_length_exceeded" in together.body


@pytest.mark.parametrize("stream", [True, False])
async def test_engine_error_keeps_status_and_body(tmp_path: Path, stream: bool) -> None:  # noqa: FBT001 -- a parameter of the table
    body = b'{"error":{"message":"no","type":"invalid_request_error","code":"bad"}}'
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n"
    async with engines(says(head % len(body), body)) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        for _ in range(5):
            reply = await rig.once(post(ask(stream=stream)))
            assert (reply.status, reply.body) == (400, body)

        record = await rig.record(5)
        assert (record.outcome, record.detail, record.status) == (Outcome.ERROR, "400", 400)
        assert rig.worker.house.fleet.upstreams["e1"].ejected_until == 0  # bad prompts do not take a fleet down


async def test_client_that_leaves_stops_the_engine(tmp_path: Path) -> None:
    async def endless(_: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE)
        while not seen.gone.is_set():
            writer.write(chunk(FIRST))
            await asyncio.sleep(0.01)

    async with engines(endless) as (engine,), gateway(tmp_path, routes(endpoint(engine, slots=1))) as rig:
        for stream in (True, False):
            client = await rig.connect()
            client.send(post(ask(stream=stream)))
            await asyncio.sleep(0.1)
            client.close()
            async with asyncio.timeout(1):
                await engine.seen[-1].gone.wait()
        records = [await rig.record(1), await rig.record(2)]
        assert [record.outcome for record in records] == [Outcome.CANCELLED, Outcome.CANCELLED]
        await rig.idle()


async def test_client_that_leaves_before_the_engine_answers_stops_it(tmp_path: Path) -> None:
    async with engines(silent) as (engine,), gateway(tmp_path, routes(endpoint(engine, slots=1))) as rig:
        client = await rig.connect()
        client.send(post(ask()))
        await asyncio.sleep(0.1)
        client.close()
        async with asyncio.timeout(1):
            await engine.seen[0].gone.wait()
        assert (await rig.record()).outcome is Outcome.CANCELLED
        await rig.idle()


@pytest.mark.parametrize(
    ("script", "timeouts", "detail"),
    [
        pytest.param(silent, Timeouts(first_byte=0.2), "first_byte", id="no head"),
        pytest.param(says(SSE, chunk(FIRST), pause=0.05), Timeouts(idle=0.2), "idle", id="no next event"),
        pytest.param(
            says(SSE, *[chunk(b": ping\n\n")] * 30, pause=0.05), Timeouts(first_byte=0.3), "first_byte", id="comments"
        ),
        pytest.param(
            says(SSE, *[chunk(FIRST)] * 60, pause=0.05), Timeouts(max_generation=0.3), "max_generation", id="too long"
        ),
    ],
)
async def test_each_time_limit_is_its_own_outcome(
    tmp_path: Path, script: Script, timeouts: Timeouts, detail: str
) -> None:
    async with engines(script) as (engine,), gateway(tmp_path, routes(endpoint(engine), timeouts=timeouts)) as rig:
        reply = await rig.once(post(ask(stream=True)))

        assert b"upstream_timeout" in reply.body
        record = await rig.record()
        assert (record.outcome, record.detail) == (Outcome.TIMEOUT, detail)
        await rig.idle()


async def test_silence_is_bridged_by_comments_and_then_the_answer_follows(tmp_path: Path) -> None:
    async def slow(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.8)
        writer.write(SSE + chunk(WHOLE) + END)

    policy = routes(endpoint(0), commit_after=0.2, keep_alive=0.2)
    async with engines(slow) as (engine,):
        policy = msgspec.structs.replace(policy, endpoints=(endpoint(engine),))
        async with gateway(tmp_path, policy) as rig:
            reply = await rig.once(post(ask(stream=True)))

            assert reply.body.startswith(b": keep-alive\n\n: keep-alive\n\n")
            assert reply.body.replace(b": keep-alive\n\n", b"") == FIRST + SECOND + FINISH + DONE


async def test_late_error_status_becomes_a_frame(tmp_path: Path) -> None:
    async def slow(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(b'HTTP/1.1 500 X\r\ncontent-length: 18\r\n\r\n{\n"message":"oh" }')

    async with engines(slow) as (engine,), gateway(tmp_path, routes(endpoint(engine), commit_after=0.1)) as rig:
        reply = await rig.once(post(ask(stream=True)))

        assert reply.status == 200
        assert b'data: {"error":{"message":"oh"' in reply.body
        assert ((await rig.record()).outcome, (await rig.record()).detail) == (Outcome.ERROR, "500")


async def test_stale_connection_is_replaced_without_a_retry_elsewhere(tmp_path: Path) -> None:
    async def once(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(WHOLE) + END)
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.close()

    async with engines(once) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        for _ in range(5):
            assert (await rig.once(post(ask(stream=True)))).body.endswith(DONE)
        await rig.idle()


async def test_refused_connection_goes_to_the_neighbour(tmp_path: Path) -> None:
    async with engines(whole, whole) as (dead, engine):
        await dead.stop()
        await asyncio.sleep(0.05)
        policy = routes(endpoint(dead, "dead"), endpoint(engine, "good"))
        async with gateway(tmp_path, policy) as rig:
            for _ in range(12):
                assert (await rig.once(post(ask(stream=True)))).body.endswith(DONE)
            records = [await rig.record(n) for n in range(1, 13)]
            assert {record.endpoint for record in records} == {"good"}
            assert rig.worker.house.fleet.upstreams["dead"].faults <= 4  # it was left alone after some faults


async def test_overloaded_engine_has_a_neighbour(tmp_path: Path) -> None:
    busy = says(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
    async with engines(busy, whole) as (first, second):
        async with gateway(tmp_path, routes(endpoint(first, "a"), endpoint(second, "b"))) as rig:
            for _ in range(6):
                assert (await rig.once(post(ask(stream=True)))).status == 200
        async with gateway(tmp_path, routes(endpoint(first, "a"))) as rig:
            assert (await rig.once(post(ask(stream=True)))).status == 503


async def test_slots_are_never_exceeded_and_waiters_run_in_order(tmp_path: Path) -> None:
    async def brief(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.03)
        writer.write(SSE + chunk(WHOLE) + END)

    async with engines(brief) as (engine,), gateway(tmp_path, routes(endpoint(engine, slots=2, queue=20))) as rig:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(rig.once(post(ask(stream=True)))) for _ in range(12)]
        assert all(task.result().body.endswith(DONE) for task in tasks)
        assert engine.most == 2
        await rig.idle()


async def test_full_queue_refuses_with_a_time(tmp_path: Path) -> None:
    async with engines(silent) as (engine,), gateway(tmp_path, routes(endpoint(engine, slots=1, queue=1))) as rig:
        clients = [await rig.connect() for _ in range(2)]
        for client in clients:
            client.send(post(ask(stream=True)))
            await asyncio.sleep(0.05)
        live = rig.worker.live()
        assert (live.endpoints[0].running, live.services[0].waiting, len(live.in_flight)) == (1, 1, 2)

        reply = await rig.once(post(ask(stream=True), key=OTHER))

        assert reply.status == 429
        assert 1 <= int(reply.header("retry-after")) <= 30
        assert ((await rig.record()).outcome, (await rig.record()).detail) == (Outcome.REJECTED, "queue")
        for client in clients:
            client.close()
        await rig.idle()


async def test_a_black_hole_does_not_delay_others(tmp_path: Path) -> None:
    async with engines(silent, whole) as (hole, engine):
        other = msgspec.structs.replace(
            routes(endpoint(engine, "good")).services[0], name="default/other", models=("other",)
        )
        policy = routes(endpoint(hole, "hole", slots=2, queue=50), endpoint(engine, "good"))
        service = msgspec.structs.replace(
            policy.services[0], targets=(msgspec.structs.replace(policy.services[0].targets[0], endpoints=("hole",)),)
        )
        async with gateway(tmp_path, msgspec.structs.replace(policy, services=(service, other))) as rig:
            stuck = [await rig.connect() for _ in range(20)]
            for client in stuck:
                client.send(post(ask(stream=True)))
            async with asyncio.timeout(3):
                for _ in range(20):
                    assert (await rig.once(post(ask(model="other", stream=True)))).body.endswith(DONE)
            for client in stuck:
                client.close()
            await rig.idle()


async def test_slow_client_holds_the_engine_back(tmp_path: Path) -> None:
    written = 0

    async def flood(_: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(SSE)
        event = chunk(FIRST * 200)
        for _ in range(2000):
            if seen.gone.is_set():
                return
            writer.write(event)
            written += len(event)
            await writer.drain()

    async with engines(flood) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        client = await rig.connect()
        client.send(post(ask(stream=True)))
        before = -1
        while before != written or not written:
            before = written
            await asyncio.sleep(0.3)
        assert written < 40 << 20  # of 60 MB: the rest waits in the engine
        client.close()
        await rig.idle()


async def test_stop_ends_long_streams_with_a_frame(tmp_path: Path) -> None:
    async def endless(_: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE)
        while not seen.gone.is_set():
            writer.write(chunk(FIRST))
            await asyncio.sleep(0.02)

    async with engines(endless) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        client = await rig.connect()
        client.send(post(ask(stream=True)))
        await asyncio.sleep(0.1)
        rig.stop.set()
        reply = await asyncio.wait_for(client.reply(), 8)
        assert reply.complete
        assert b"gateway_stopping" in reply.body
        assert USAGE not in reply.body
