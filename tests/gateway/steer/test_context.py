"""A prompt that does not fit is refused before an engine is asked; in doubt the engine counts; refusals help."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    END,
    SSE,
    WHOLE,
    Engine,
    Reply,
    Script,
    Seen,
    ask,
    chunk,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    whole,
)


def counting(tokens: int | None) -> Script:
    """Answer well, and say how large a prompt is; None: the tokeniser hangs."""

    async def script(engine: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.head.startswith(b"POST /tokenize"):
            if tokens is None:
                await seen.gone.wait()
                return
            body = msgspec.json.encode({"count": tokens, "max_model_len": 1000})
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            return
        await whole(engine, seen, writer)

    return script


def refusing(status: int, text: str, extra: str = "") -> Script:
    async def script(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        body = msgspec.json.encode({"error": {"message": text}})
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{extra}content-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    return script


def long(characters: int, **fields: object) -> dict[str, object]:
    return ask(messages=[{"role": "user", "content": "word " * (characters // 5)}], **fields)


def error(reply: Reply) -> dict[str, object]:
    return msgspec.json.decode(reply.body)["error"]


async def test_what_surely_fits_is_not_counted(tmp_path: Path) -> None:
    async with engines(counting(1)) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=8192))) as rig:
            assert (await rig.once(post(long(3000)))).status == 200
        assert [seen.head.split()[1] for seen in engine.seen] == [b"/v1/chat/completions"]


async def test_what_surely_does_not_fit_is_refused_without_a_count(tmp_path: Path) -> None:
    async with engines(counting(1)) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=1000))) as rig:
            reply = await rig.once(post(long(20_000)))
            record = await rig.record()
            await rig.idle()
        assert (reply.status, error(reply)["code"]) == (400, "context_length_exceeded")
        assert "maximum context length is 1000 tokens" in str(error(reply)["message"])
        assert reply.header("x-should-retry") == "false"
        assert (record.outcome, record.detail) == ("rejected", "context")
        assert not engine.seen


@pytest.mark.parametrize(
    ("tokens", "status", "cap"),
    [(400, 200, 256), (800, 200, 200), (900, 400, 0), (1200, 400, 0)],
    ids=["fits", "fits with fewer", "leaves too little", "too long"],
)
async def test_in_doubt_the_engine_counts(tmp_path: Path, tokens: int, status: int, cap: int) -> None:
    async with engines(counting(tokens)) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=1000), cap=256)) as rig:
            reply = await rig.once(post(long(3000, max_tokens=200) if cap == 200 else long(3000)))
            await rig.idle()
        assert reply.status == status
        assert engine.seen[0].head.startswith(b"POST /tokenize ")
        if status == 200:
            assert msgspec.json.decode(engine.seen[1].body)["max_tokens"] == cap
        else:
            assert error(reply)["code"] == "context_length_exceeded"
            assert len(engine.seen) == 1


async def test_an_output_that_does_not_fit_is_cut_down(tmp_path: Path) -> None:
    """An agent asks for 32,000 tokens as a matter of form: it gets what fits, and the record says so."""
    async with engines(counting(3000)) as (engine,):
        policy = routes(endpoint(engine, engine="vllm", context_tokens=8192), cap=32000)
        async with gateway(tmp_path, policy) as rig:
            assert (await rig.once(post(long(12_000, max_tokens=32000)))).status == 200
            record = await rig.record()
        assert msgspec.json.decode(engine.seen[1].body)["max_tokens"] == 8192 - 3000
        assert "max_tokens" in record.splices


async def test_a_tokeniser_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    async with engines(counting(None)) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=1000))) as rig:
            assert (await rig.once(post(long(3000)))).status == 200
            await rig.idle()
        assert len(engine.seen) == 2


async def test_a_client_that_leaves_while_the_engine_counts(tmp_path: Path) -> None:
    async with engines(counting(None)) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=1000))) as rig:
            client = await rig.connect()
            client.send(post(long(3000)))
            async with asyncio.timeout(5):
                while not engine.seen:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            client.close()
            assert (await rig.record()).outcome == "cancelled"
            async with asyncio.timeout(1):
                await engine.seen[0].gone.wait()
            await rig.idle()
        assert len(engine.seen) == 1


async def test_an_image_is_not_measured_by_its_bytes(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}
    async with engines(counting(1)) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=1000))) as rig:
            reply = await rig.once(post(ask(messages=[{"role": "user", "content": [image]}])))
        assert reply.status == 200
        assert len(engine.seen) == 1


TOO_LONG = "The input (6000 tokens) is longer than the model's context length (4096 tokens)."


@pytest.mark.parametrize(
    ("status", "text", "want", "code"),
    [
        (
            400,
            "The input (6000 tokens) is longer than the model's context length (4096 tokens).",
            400,
            "context_length_exceeded",
        ),
        (401, "Invalid API Key", 502, "upstream_credential"),
        (404, "The model `up` does not exist.", 502, "upstream_not_found"),
        (500, "unsupported tool type: web_search", 400, None),
        (500, "CUDA error", 500, None),
    ],
)
async def test_refusals_of_an_engine(tmp_path: Path, status: int, text: str, want: int, code: str | None) -> None:
    async with engines(refusing(status, text)) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        for streams in (False, True):
            reply = await rig.once(post(ask(stream=streams)))
            assert reply.status == want
            assert error(reply).get("code") == code or code is None
            assert (reply.header("x-should-retry") == "false") == (want == 400)
        assert (await rig.record()).detail == str(status)
        assert len(engine.seen) == 2


@pytest.mark.parametrize(
    ("asked", "told"), [("5", "5"), ("7200", "60"), ("0", "1"), ("Fri, 31 Dec 1999 23:59:59 GMT", "1")]
)
async def test_how_long_to_wait_is_bounded(tmp_path: Path, asked: str, told: str) -> None:
    async with (
        engines(refusing(429, "busy", f"retry-after: {asked}\r\n")) as (engine,),
        gateway(tmp_path, routes(endpoint(engine))) as rig,
    ):
        reply = await rig.once(post(ask()))
        assert (reply.status, reply.header("retry-after")) == (429, told)


async def test_the_band_is_learned(tmp_path: Path) -> None:
    """After some answers of known size the estimate alone is enough where at first the engine had to count."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":600,"completion_tokens":2,"total_tokens":602}}\n\n'
    answer = SSE + chunk(WHOLE.replace(b"data: [DONE]\n\n", b"") + usage + b"data: [DONE]\n\n") + END

    async def script(_: Engine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if seen.head.startswith(b"POST /tokenize"):
            writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"count":600}')
        else:
            writer.write(answer)

    async with engines(script) as (engine,):
        async with gateway(tmp_path, routes(endpoint(engine, engine="vllm", context_tokens=1100))) as rig:
            for _ in range(22):
                assert (await rig.once(post(long(2500)))).status == 200
            counted = [seen for seen in engine.seen if seen.head.startswith(b"POST /tokenize")]
        assert len(counted) == 20
