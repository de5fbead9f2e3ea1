"""Play the checks, one after another."""

import asyncio
from collections.abc import Callable, Iterator

import uvloop

from stoker.base import clock
from stoker.base.json import JsonObject
from stoker.bench.load.generator import Generator, Limits, Load
from stoker.bench.load.render import render
from stoker.bench.load.script import Burst
from stoker.bench.load.talk import Ask, Costs, Style
from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.bench.selfcheck import checks
from stoker.bench.selfcheck.checks import Row
from stoker.decide.measure.summary import Taken
from stoker.drivers.hosts.rehearsal import Known, known

_FREEZE_SECONDS = 0.2
_APART_SECONDS = 0.005  # a salvo would measure how fast an engine accepts connections


def selfcheck(tell: Callable[[str], None] = lambda _what: None) -> Iterator[Row]:
    """Run every check against an engine whose truth is known. Raises Driver where that cannot be started."""
    with known() as engine:
        tell("how exact are the times of eight streams")
        taken = play(engine, checks.STEADY, checks.asks(24, output=100), clients=8)
        yield from checks.timing(taken, engine.truth())
        tell("is every fault counted as what it is")
        yield from checks.mix(play(engine, checks.MIX, checks.asks(100, output=8), clients=4, tools=True).samples)
        tell("are hidden thoughts told from what is seen")
        thinking = play(engine, checks.THINKING, checks.asks(8, output=100), clients=8)
        yield from checks.thoughts(thinking.samples)
        tell(f"what does it cost at {checks.STREAMS} streams")
        many = play(engine, checks.MANY, checks.asks(checks.STREAMS, output=160), clients=checks.STREAMS)
        yield from checks.light(many, engine.truth())
        tell("does it say so when it stood still")
        yield from checks.frozen(play(engine, checks.STEADY, checks.asks(8, output=100), clients=8, freeze=True))


def play(
    engine: Known, behaviour: JsonObject, asks: list[Ask], *, clients: int, tools: bool = False, freeze: bool = False
) -> Taken:
    """Send requests to a known engine that behaves so, and bring back what came of them."""
    engine.play(behaviour)
    target = Target(url=engine.url, model=engine.model)
    style = Style(render=render(target), book=Book(), costs=Costs(), salt="selfcheck", tools=tools)
    script = Burst(asks, clients, apart_seconds=_APART_SECONDS)
    made = Generator(target, style, script, Limits(window=120.0), model_answers=False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(made, clients, freeze=freeze))


async def _run(made: Generator, clients: int, *, freeze: bool) -> Taken:
    if freeze:
        asyncio.get_running_loop().call_later(0.5, clock.sleep, _FREEZE_SECONDS)
    return await made.play(Load(value=clients, unit="concurrency", seed=1))
