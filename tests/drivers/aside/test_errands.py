"""The real translator process: what it says, and what becomes of an errand when it dies."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from stoker.drivers.aside import errands
from stoker.drivers.aside.__main__ import serve
from stoker.drivers.aside.errands import Aside, Told
from stoker.drivers.aside.frames import HEAD, Job, Said, begun
from stoker.wire.ask.translate import Way, translate

JOB = Job(client="messages", upstream="chat", engine="vllm", cap=16, model="m", stream=True)
BODY = msgspec.json.encode(
    {"model": "x", "max_tokens": 99, "messages": [{"role": "user", "content": "wörter \u2028" * 300_000}]}
)
BAD = msgspec.json.encode({"model": "x", "max_tokens": 9, "messages": [{"role": "user", "content": 7}]})


@asynccontextmanager
async def helping() -> AsyncIterator[Aside]:
    aside = Aside()
    try:
        yield aside
    finally:
        aside.close()
        await asyncio.sleep(0.05)


def ask(aside: Aside, body: bytes) -> "asyncio.Future[Told]":
    future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
    aside.translate(JOB, body, future.set_result)
    return future


async def test_it_says_what_the_translation_says() -> None:
    async with helping() as aside, asyncio.timeout(10):
        large, bad = ask(aside, BODY), ask(aside, BAD)
        expected = translate(
            BODY, Way(client="messages", upstream="chat", engine="vllm"), cap=16, model="m", stream=True
        )

        assert await large == Told(body=expected.body, splices=expected.splices)
        assert "content" in (await bad).invalid
        assert aside.pid


async def test_an_errand_that_is_dropped_is_not_reported_and_holds_nobody_up() -> None:
    async with helping() as aside, asyncio.timeout(10):
        heard: list[Told] = []
        running, waiting = (aside.translate(JOB, BODY, heard.append) for _ in range(2))
        running.drop()
        waiting.drop()

        assert (await ask(aside, BODY)).body
        assert heard == []


async def test_a_translator_that_dies_costs_one_errand_and_is_replaced() -> None:
    async with helping() as aside, asyncio.timeout(10):
        await ask(aside, BODY)
        first = aside.pid
        os.kill(first, signal.SIGSTOP)  # so that it surely dies in the middle
        lost, following = ask(aside, BODY), ask(aside, BODY)
        await asyncio.sleep(0.05)
        os.kill(first, signal.SIGKILL)

        assert (await lost).failed == "the translator ended in the middle of it"
        assert (await following).body
        assert aside.pid not in (0, first)


async def test_a_translator_that_hangs_or_idles_is_ended() -> None:
    async with helping() as aside, asyncio.timeout(10):
        await ask(aside, BODY)
        first = aside.pid
        os.kill(first, signal.SIGSTOP)
        stuck = ask(aside, BODY)
        aside.sweep(asyncio.get_running_loop().time() + 1.0)
        assert not stuck.done()
        aside.sweep(asyncio.get_running_loop().time() + 61.0)
        assert (await stuck).failed

        await ask(aside, BODY)
        assert aside.pid
        aside.sweep(asyncio.get_running_loop().time() + 61.0)
        assert aside.pid == 0


async def test_a_translator_that_cannot_be_started_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands.sys, "executable", "/nowhere/python")
    async with helping() as aside, asyncio.timeout(10):
        assert "cannot be started" in (await ask(aside, BODY)).failed


def test_it_ends_with_whoever_gave_it_work() -> None:
    told = io.BytesIO()
    whole = begun(JOB, len(BAD)) + BAD
    serve(io.BytesIO(whole + whole[:-1]), told)

    part, body = HEAD.unpack_from(told.getvalue())
    assert msgspec.json.decode(told.getvalue()[HEAD.size :], type=Said).invalid
    assert (len(told.getvalue()), body) == (HEAD.size + part, 0)
