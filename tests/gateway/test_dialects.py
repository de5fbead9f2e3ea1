"""Every dialect through the gateway: translated, counted, priced; adapters, mirrors, and endpoints outside."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    END,
    KEY,
    SSE,
    WHOLE,
    Engine,
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
    until,
    whole,
)

from stoker.facts.routes import Mirror, Price, Routes, Service, Target, Timeouts

MESSAGE = {"model": "tiny", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}


def event(kind: str, **members: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **members}))


BEGUN = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "up",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 1},
}
ANTHROPIC = b"".join(
    [
        event("message_start", message=BEGUN),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hey"}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 2}),
        event("message_stop"),
    ]
)


def json(status: int, body: dict[str, object]) -> bytes:
    data = msgspec.json.encode(body)
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(data),
        data,
    )


def answers(**by_path: object) -> Script:
    """Answer by path: bytes, or a dict as JSON."""

    async def script(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        path = seen.head.split(b" ")[1].decode()
        given = by_path.get(path.strip("/").replace("/", "_").replace("-", "_"))
        if isinstance(given, dict):
            writer.write(json(200, given))
        elif isinstance(given, bytes):
            writer.write(SSE + chunk(given) + END)
        else:
            await whole(engine, seen, writer)

    return script


async def test_messages_are_answered_by_an_engine_that_speaks_chat(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        streamed = await rig.once(post({**MESSAGE, "stream": True}, path="/v1/messages?beta=true"))
        told = await rig.once(post(MESSAGE, path="/v1/messages"))
        record = await rig.record(2)

    events = [line for line in streamed.body.split(b"\n") if line.startswith(b"event: ")]
    assert events[0] == b"event: message_start"
    assert events[-1] == b"event: message_stop"
    assert streamed.header("request-id") == streamed.header("x-request-id") != ""
    message = msgspec.json.decode(told.body)
    assert (message["type"], message["stop_reason"]) == ("message", "end_turn")
    assert "".join(part["text"] for part in message["content"]) == "Héllo"
    assert message["usage"]["output_tokens"] == 2
    assert (record.dialect, record.tokens.prompt, record.tokens.cached) == ("messages", 5, 3)
    assert all(seen.head.startswith(b"POST /v1/chat/completions") for seen in engine.seen)


async def test_responses_are_answered_by_an_engine_that_speaks_chat(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        request = {"model": "tiny", "input": "hi"}
        streamed = await rig.once(post({**request, "stream": True}, path="/v1/responses"))
        told = await rig.once(post(request, path="/v1/responses"))
        cap = msgspec.json.decode(engine.seen[0].body)["max_tokens"]

    assert b"event: response.completed\n" in streamed.body
    assert msgspec.json.decode(told.body)["status"] == "completed"
    assert cap == 256


async def test_a_cut_stream_is_an_error_in_each_dialect(tmp_path: Path) -> None:
    async def cut(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(WHOLE[:200]) + END)

    async with engines(cut) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        message = await rig.once(post({**MESSAGE, "stream": True}, path="/v1/messages"))
        response = await rig.once(post({"model": "tiny", "input": "hi", "stream": True}, path="/v1/responses"))
        records = [await rig.record(1), await rig.record(2)]

    assert b"event: error\n" in message.body
    assert b"message_stop" not in message.body
    assert b"event: response.failed\n" in response.body
    assert {record.outcome for record in records} == {"truncated"}


async def test_an_engine_that_has_only_begun_is_not_idle(tmp_path: Path) -> None:
    """It says at once that there will be an answer, and then reads the prompt for longer than it may be idle."""

    async def slow(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        start, rest = ANTHROPIC.split(b"\n\n", 1)
        writer.write(SSE + chunk(start + b"\n\n"))
        await asyncio.sleep(0.8)
        writer.write(chunk(rest) + END)

    limits = Timeouts(idle=0.3, first_byte=5)
    async with (
        engines(slow) as (engine,),
        gateway(tmp_path, routes(endpoint(engine, dialects=("messages",)), timeouts=limits)) as rig,
    ):
        reply = await rig.once(post({**MESSAGE, "stream": True}, path="/v1/messages"))
        record = await rig.record()
    assert reply.body == ANTHROPIC
    assert record.outcome == "complete"
    assert len(engine.seen) == 1


async def test_an_anthropic_endpoint_is_asked_in_its_way(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-outside\n")
    outside = answers(v1_messages=ANTHROPIC)
    price = Price(input_usd=3.0, cached_usd=0.3, output_usd=15.0)
    async with engines(outside) as (engine,):
        point = endpoint(
            engine, dialects=("messages",), key_header=True, credential_file="key", price=price, upstream_model="big"
        )
        async with gateway(tmp_path, routes(point)) as rig:
            chat = await rig.once(post(ask(stream=True)))
            message = await rig.once(post({**MESSAGE, "stream": True}, path="/v1/messages"))
            record = await rig.record()

    head = engine.seen[0].head.lower()
    assert b"\r\nx-api-key: sk-outside\r\n" in head
    assert b"anthropic-version: 20" in head
    assert b"authorization" not in head
    assert msgspec.json.decode(engine.seen[0].body)["model"] == "big"
    assert b'"content":"Hey"' in chat.body
    assert chat.body.endswith(b"data: [DONE]\n\n")
    assert message.body == ANTHROPIC
    assert record.price_usd == pytest.approx((5 * 3.0 + 2 * 15.0) / 1e6)


async def test_a_credential_is_read_again_in_time(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("first")
    async with (
        engines(whole) as (engine,),
        gateway(tmp_path, routes(endpoint(engine, credential_file="key", refresh=0.2))) as rig,
    ):
        await rig.once(post(ask()))
        (tmp_path / "key").write_text("second")
        up = rig.worker.house.fleet.upstreams["e1"]
        await until(lambda: b"second" in up.fields)
        await rig.once(post(ask()))
    assert [b"Bearer second" in seen.head for seen in engine.seen] == [False, True]


async def test_tokens_are_counted_by_an_engine_that_can(tmp_path: Path) -> None:
    async with engines(answers(v1_messages_count_tokens={"input_tokens": 77})) as (engine,):
        point = endpoint(engine, dialects=("chat", "messages"))
        async with gateway(tmp_path, routes(point)) as rig:
            reply = await rig.once(post(MESSAGE, path="/v1/messages/count_tokens"))
            record = await rig.record()
    assert msgspec.json.decode(reply.body) == {"input_tokens": 77}
    assert (record.outcome, record.dialect, record.flags) == ("complete", "count_tokens", ())


async def test_tokens_are_counted_by_a_tokeniser_of_another_shape(tmp_path: Path) -> None:
    two_steps = answers(apply_template={"prompt": "<user>hi"}, tokenize={"tokens": [1, 2, 3, 4]})
    async with (
        engines(answers(tokenize={"count": 12}), two_steps) as (vllm, llama),
        gateway(tmp_path, routes(endpoint(vllm, engine="vllm"))) as rig,
    ):
        first = await rig.once(post(MESSAGE, path="/v1/messages/count_tokens"))
        await rig.load(routes(endpoint(llama, engine="llama.cpp")))
        second = await rig.once(post(MESSAGE, path="/v1/messages/count_tokens"))
        await rig.idle()
    assert [msgspec.json.decode(reply.body)["input_tokens"] for reply in (first, second)] == [12, 4]
    assert first.header("x-stoker-estimated") == ""
    assert [seen.head.split(b" ")[1] for seen in llama.seen] == [b"/apply-template", b"/tokenize"]


async def test_tokens_are_estimated_where_nobody_can_count(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(MESSAGE, path="/v1/messages/count_tokens"))
        record = await rig.record()
    assert reply.header("x-stoker-estimated") == "true"
    assert 1 <= msgspec.json.decode(reply.body)["input_tokens"] <= 40
    assert (record.outcome, record.dialect) == ("complete", "count_tokens")


async def test_models_come_in_the_shape_of_the_client(tmp_path: Path) -> None:
    few = (caller("alice", KEY, services=("default/tiny",)),)
    other = Service(name="default/secret", models=("secret",), targets=(Target(endpoints=("e1",)),))
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine))
        policy = msgspec.structs.replace(policy, services=(*policy.services, other))
        async with gateway(tmp_path, policy, callers=few) as rig:
            get = f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
            openai = await rig.once(f"{get}\r\n".encode())
            anthropic = await rig.once(f"{get}anthropic-version: 2023-06-01\r\n\r\n".encode())
            missing = await rig.once(post(ask(model="tinny")))
            hidden = await rig.once(post({**MESSAGE, "model": "secret"}, path="/v1/messages"))

    assert [model["id"] for model in msgspec.json.decode(openai.body)["data"]] == ["tiny", "default/tiny"]
    page = msgspec.json.decode(anthropic.body)
    assert ([model["type"] for model in page["data"]], page["has_more"]) == (["model", "model"], False)
    told = msgspec.json.decode(missing.body)["error"]
    assert told["code"] == "model_not_found"
    assert "Did you mean 'tiny'" in told["message"]
    assert "You may use: tiny, default/tiny." in told["message"]
    refused = msgspec.json.decode(hidden.body)
    assert (refused["type"], refused["error"]["type"]) == ("error", "not_found_error")


async def test_an_adapter_is_a_model_and_goes_where_it_is(tmp_path: Path) -> None:
    async with engines(whole, whole) as (plain, adapted):
        policy = routes(endpoint(plain, "plain"), endpoint(adapted, "adapted", models=("sql",)))
        service = msgspec.structs.replace(policy.services[0], models=("tiny", "sql"), adapters={"sql": "sql"})
        async with gateway(tmp_path, msgspec.structs.replace(policy, services=(service,))) as rig:
            for n in range(6):
                assert (await rig.once(post(ask(model="sql", user=str(n))))).status == 200
            record = await rig.record()
    assert not plain.seen
    assert {msgspec.json.decode(seen.body)["model"] for seen in adapted.seen} == {"sql"}
    assert record.model == "sql"


async def test_volatile_parts_are_taken_out_of_the_prompt_where_that_is_asked_for(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine))
        service = msgspec.structs.replace(policy.services[0], strip=("date",))
        async with gateway(tmp_path, msgspec.structs.replace(policy, services=(service,))) as rig:
            await rig.once(post(ask(messages=[{"role": "user", "content": "It is 2026-11-30"}])))
            record = await rig.record()
    assert msgspec.json.decode(engine.seen[0].body)["messages"][0]["content"] == "It is <date>"
    assert "normalised:date" in record.splices


def mirrored(policy: Routes, percent: float) -> Routes:
    service = msgspec.structs.replace(
        policy.services[0],
        targets=(Target(endpoints=("e1",)),),
        mirror=Mirror(endpoints=("copy",), percent=percent),
    )
    return msgspec.structs.replace(policy, services=(service,))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_mirror_gets_copies_and_nobody_waits_for_it(tmp_path: Path, path: str) -> None:
    async def cut(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(SSE + chunk(WHOLE[:300]) + END)

    request = {"model": "tiny", "max_tokens": 9, "stream": True}
    request |= {"input": "hi"} if path.endswith("responses") else {"messages": [{"role": "user", "content": "hi"}]}
    async with engines(whole, cut) as (real, copy):
        policy = mirrored(routes(endpoint(real), endpoint(copy, "copy")), 1e-9)
        async with gateway(tmp_path, policy) as rig:
            plain = await rig.once(post(request, path=path))
            before = len(real.seen) + len(copy.seen)
            await rig.load(mirrored(policy, 100.0))
            copied = await rig.once(post(request, path=path))
            await until(lambda: len(rig.records()) == 3)
            await rig.idle()
            records = {record.caller: record for record in rig.records()[1:]}

    assert before == 1
    assert copied.status == 200
    assert copied.body.count(b"event: ") == plain.body.count(b"event: ")  # the mirror does not speak in between
    assert records["alice"].outcome == "complete"
    assert (records["stoker:mirror"].outcome, records["stoker:mirror"].endpoint) == ("truncated", "copy")
    assert records["stoker:mirror"].id != records["alice"].id


async def test_a_mirror_that_is_gone_or_full_changes_nothing(tmp_path: Path) -> None:
    async with engines(whole, whole) as (real, copy):
        policy = mirrored(routes(endpoint(real), endpoint(copy, "copy", slots=1)), 100.0)
        async with gateway(tmp_path, policy) as rig:
            assert rig.worker.house.fleet.upstreams["copy"].take(capped=True)
            assert (await rig.once(post(ask()))).status == 200
            assert not copy.seen
            rig.worker.house.fleet.upstreams["copy"].give(shared=True)
            await copy.stop()
            assert (await rig.once(post(ask()))).status == 200
            await until(lambda: len(rig.records()) == 3)
            assert [r.outcome for r in rig.records() if r.caller == "stoker:mirror"] == ["error"]
            await rig.load(mirrored(policy, 0.0001))
            assert (await rig.once(post(ask()))).status == 200
            await rig.idle()
            assert len(rig.records()) == 4


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize(
    ("code", "status", "header"),
    [(400, 400, "x-should-retry"), (401, 502, ""), (404, 502, ""), (529, 503, "retry-after")],
)
async def test_an_error_inside_the_engines_stream_is_a_status_for_who_wants_one_body(
    tmp_path: Path, path: str, code: int, status: int, header: str
) -> None:
    error = b'data: {"error":{"code":%d,"message":"no","type":"server_error"}}\n\n' % code
    body = {"model": "tiny", "input": "hi"} if path == "/v1/responses" else MESSAGE
    async with (
        engines(says(SSE, chunk(error), END)) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post(body, path=path))
        told = msgspec.json.decode(reply.body)

        assert (reply.status, reply.header("content-type")) == (status, "application/json")
        assert told["error"]["message"]
        assert not header or reply.header(header)
        assert (await rig.record()).status == status
        assert (await rig.record()).detail == "in_band"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [b"204 No Content", b"302 Found", b"201 Created"])
async def test_a_status_that_promises_nothing_is_not_passed_on(
    tmp_path: Path, path: str, status: bytes, *, stream: bool
) -> None:
    length = b"" if status.startswith(b"204") else b"content-length: 0\r\n"
    body = {"model": "tiny", "input": "hi"} if path == "/v1/responses" else MESSAGE
    async with (
        engines(says(b"HTTP/1.1 %b\r\n%b\r\n" % (status, length))) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post({**body, "stream": stream}, path=path))

        assert reply.status == 502
        assert b"cannot be read: its status is" in reply.body
        assert (await rig.record()).status == 502


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_an_answer_in_one_piece_is_none_for_who_reads_events(tmp_path: Path, path: str) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hey"}, "finish_reason": "stop"}
    whole_answer = {"id": "c", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    body = {"model": "tiny", "input": "hi"} if path == "/v1/responses" else MESSAGE
    async with (
        engines(says(json(200, whole_answer))) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post({**body, "stream": True}, path=path))

        assert reply.status == 502
        assert b"without a stream" in reply.body
        assert (await rig.record()).tokens.output == 2  # the engine did generate them


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_anthropic_clients_find_the_request_id(tmp_path: Path, path: str) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        for key in (KEY, "wrong"):
            reply = await rig.once(post(MESSAGE, path=path, key=key))

            assert reply.header("request-id") == reply.header("x-request-id")
