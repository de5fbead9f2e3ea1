"""Usage is the engine's own in every cell: dialect, stream or not, asked for or not, native or translated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import Reply, endpoint, gateway, post, routes

from stoker.facts.record import Tokens
from stoker.rehearse.answer import Engine
from stoker.rehearse.script import Script
from stoker.rehearse.server import Server

pytestmark = pytest.mark.anyio
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
WORDS = "one two three four five"
SCRIPT = Script(text="a b c d e f g", reasoning="x y ", cached_tokens=3)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@asynccontextmanager
async def rehearsed(script: Script) -> AsyncIterator[tuple[Server, int]]:
    made = Server(Engine(model="tiny"), secret="", slots=8, script=lambda: script)
    server = await asyncio.start_server(made.connection, "127.0.0.1", 0)
    try:
        yield made, server.sockets[0].getsockname()[1]
    finally:
        server.close()


def asks(dialect: str, *, stream: bool, wants: bool) -> bytes:
    body: dict[str, object] = {"model": "tiny", "stream": stream, "max_tokens": 200}
    if dialect == "completions":
        body["prompt"] = WORDS
    elif dialect == "responses":
        body = {"model": "tiny", "stream": stream, "input": WORDS}
    else:
        body["messages"] = [{"role": "user", "content": WORDS}]
    if wants:
        body["stream_options"] = {"include_usage": True}
    return post(body, path=PATHS[dialect])


def shown(dialect: str, reply: Reply, *, stream: bool) -> dict[str, int]:
    """Read the usage as a client of the dialect does; nothing where it sees none."""
    if stream:
        lines = [line[6:] for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
        events = [msgspec.json.decode(line) for line in lines]
    else:
        events = [msgspec.json.decode(reply.body)]
    told: dict[str, object] = {}
    for each in events:
        if dialect == "responses":
            each = each.get("response", each)  # noqa: PLW2901
        if dialect == "messages":
            told.update(each.get("message", {}).get("usage") or {})
        told.update(each.get("usage") or {})
    return {name: value for name, value in told.items() if isinstance(value, int)}


NATIVE = [(dialect, (dialect,)) for dialect in PATHS]
TRANSLATED = [
    (client, (upstream,))
    for client in ("chat", "responses", "messages")
    for upstream in ("chat", "responses", "messages")
    if client != upstream
]


@pytest.mark.parametrize(("dialect", "speaks"), NATIVE + TRANSLATED, ids=str)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("wants", [True, False], ids=["asked", "not-asked"])
async def test_every_cell(tmp_path: Path, dialect: str, speaks: tuple[str, ...], stream: bool, wants: bool) -> None:  # noqa: FBT001
    async with rehearsed(SCRIPT) as (engine, port):
        at = endpoint(port, dialects=speaks, stream_upstream=stream)
        async with gateway(tmp_path, routes(at)) as rig:
            reply = await rig.once(asks(dialect, stream=stream, wants=wants and dialect in ("chat", "completions")))
            record = await rig.record()

    assert reply.status == 200, reply.body
    prompt, generated = engine.counts.prompt_tokens, engine.counts.generated
    assert (prompt, generated) == (5, 7 if dialect == "completions" else 9)
    tokens = record.tokens
    assert (tokens.prompt, tokens.output, tokens.cached, tokens.estimated) == (prompt, generated, 3, False)
    seen = shown(dialect, reply, stream=stream)
    if stream and not wants and dialect in ("chat", "completions"):
        assert seen == {}
        assert b'"usage":{' not in reply.body.replace(b" ", b"")
        assert b'"choices":[]' not in reply.body
    elif dialect in ("chat", "completions"):
        assert (seen["prompt_tokens"], seen["completion_tokens"]) == (prompt, generated)
        assert seen["total_tokens"] == prompt + generated
    else:
        cached = seen.get("cache_read_input_tokens", 0) if dialect == "messages" else 0
        assert (seen["input_tokens"] + cached, seen["output_tokens"]) == (prompt, generated)


@pytest.mark.parametrize(("dialect", "speaks"), [*NATIVE, ("messages", ("chat",)), ("chat", ("responses",))], ids=str)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_what_an_engine_does_not_report_is_estimated_and_marked(
    tmp_path: Path,
    dialect: str,
    speaks: tuple[str, ...],
    stream: bool,  # noqa: FBT001
) -> None:
    async with (
        rehearsed(Script(text="a b c d e f g", missing=("usage",))) as (engine, port),
        gateway(tmp_path, routes(endpoint(port, dialects=speaks))) as rig,
    ):
        reply = await rig.once(asks(dialect, stream=stream, wants=False))
        tokens: Tokens = (await rig.record()).tokens

    assert reply.status == 200, reply.body
    assert tokens.estimated
    assert tokens.output == engine.counts.generated
    assert 0 < tokens.prompt <= 20  # of five words
