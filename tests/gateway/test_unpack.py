"""Answers that come compressed although nobody asked."""

import asyncio
import gzip
import zlib
from pathlib import Path

import pytest
from tests.gateway.rig import END, WHOLE, Engine, Script, Seen, ask, chunk, endpoint, engines, gateway, post, routes


def compressed(encoding: str, body: bytes, *, piece: int) -> Script:
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"

    async def script(_: Engine, __: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{head}content-encoding: {encoding}\r\n\r\n".encode())
        for start in range(0, len(body), piece):
            writer.write(chunk(body[start : start + piece]))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(END)

    return script


@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize(("encoding", "body"), [("gzip", gzip.compress(WHOLE)), ("deflate", zlib.compress(WHOLE))])
async def test_a_compressed_stream_is_unpacked(tmp_path: Path, encoding: str, body: bytes, piece: int) -> None:
    script = compressed(encoding, body, piece=piece)
    async with engines(script) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        streamed = await rig.once(post(ask(stream=True, stream_options={"include_usage": True})))
        whole = await rig.once(post(ask()))
        record = await rig.record()
    assert streamed.body == WHOLE
    assert streamed.header("content-encoding") == ""
    assert whole.status == 200
    assert (record.outcome, record.tokens.output) == ("complete", 2)


@pytest.mark.parametrize(
    ("encoding", "body", "says"),
    [
        ("br", b"\x8b\x03\x80abc", b"'br' is not known"),
        ("gzip", b"no such thing", b"not compressed as it says"),
        ("gzip", gzip.compress(bytes(80 << 20)), b"unpacks to more than"),
    ],
    ids=["unknown", "lies", "bomb"],
)
async def test_what_cannot_be_unpacked_is_an_error(tmp_path: Path, encoding: str, body: bytes, says: bytes) -> None:
    script = compressed(encoding, body, piece=1 << 20)
    async with engines(script) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        reply = await rig.once(post(ask(stream=True)))
        record = await rig.record()
        await rig.idle()
    assert reply.status == 502
    assert says in reply.body
    assert record.outcome == "error"


async def test_a_compressed_stream_that_is_cut_is_truncated(tmp_path: Path) -> None:
    script = compressed("gzip", gzip.compress(WHOLE)[:60], piece=20)
    async with engines(script) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        await rig.once(post(ask(stream=True)))
        assert (await rig.record()).outcome == "truncated"
