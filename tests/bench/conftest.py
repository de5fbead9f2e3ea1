"""The scripted engine and the generator, in one loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from stoker.bench.load.generator import Generator, Limits, Load
from stoker.bench.load.render import render
from stoker.bench.load.script import Burst, Script
from stoker.bench.load.talk import Ask, Costs, Style
from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.decide.measure.summary import Taken
from stoker.rehearse import script as scripts
from stoker.rehearse.answer import Engine
from stoker.rehearse.server import Server

BOOK = Book()
_T = TypeVar("_T")


def asks(count: int, *, output: int = 8) -> list[Ask]:
    return [Ask(i, 1, prompt_tokens=20, output_tokens=output, shared_tokens=0, head_tokens=0) for i in range(count)]


def generator(
    url: str, script: Script, limits: Limits, *, dialect: str = "chat", tools: bool = False, answers: bool = False
) -> Generator:
    target = Target(url=url, model="m", dialect=dialect)
    style = Style(render=render(target), book=BOOK, costs=Costs(), salt="s", tools=tools)
    return Generator(target, style, script, limits, model_answers=answers)


async def with_engine(behaviour: dict[str, object], work: Callable[[str], Awaitable[_T]], *, slots: int = 64) -> _T:
    """Serve a behaviour while the work is done."""
    script = scripts.parse(msgspec.json.encode(behaviour))
    server = Server(Engine(model="m"), secret="", slots=slots, script=lambda: script)
    listening = await asyncio.start_server(server.connection, "127.0.0.1", 0)
    try:
        return await work(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    finally:
        listening.close()


async def burst(
    behaviour: dict[str, object],
    given: Sequence[Ask],
    *,
    clients: int = 4,
    limits: Limits | None = None,
    dialect: str = "chat",
    tools: bool = False,
) -> Taken:
    """Send all of them over so many connections."""

    async def work(url: str) -> Taken:
        made = generator(url, Burst(given, clients), limits or Limits(window=60.0), dialect=dialect, tools=tools)
        return await made.play(Load(value=clients, unit="concurrency", seed=1))

    return await with_engine(behaviour, work)
