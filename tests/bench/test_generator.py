"""What is counted, and how, when everything that can go wrong does."""

import asyncio
import socket
from collections import Counter

import msgspec
import pytest
from tests.bench.conftest import asks, burst, generator, with_engine

from stoker.base import clock
from stoker.bench.load.generator import Limits, Load
from stoker.bench.load.script import Burst, Closed, Open
from stoker.bench.load.target import PATHS
from stoker.decide.measure.bar import Bar
from stoker.decide.measure.summary import Taken, summarise
from stoker.predict.traffic.profile import find

pytestmark = pytest.mark.anyio

# Each of these once in twenty; the other fourteen are good.
FAULTS: list[dict[str, object]] = [
    {"status": 429},
    {"cut_after_tokens": 3, "cut": "clean"},
    {"cut_after_tokens": 3, "cut": "reset"},
    {"error_after_tokens": 3},
    {"empty": True},
    {"calls": 1, "half_call": "finished"},
]
MIX: dict[str, object] = {"text": "one two three four five", "calls": 0, "rota": [*FAULTS, *([{}] * 14)]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def kinds(taken: Taken) -> dict[str, int]:
    return dict(Counter(sample.kind.value for sample in taken.samples))


@pytest.mark.parametrize("dialect", PATHS)
async def test_each_fault_is_counted_as_what_it_is(dialect: str) -> None:
    taken = await burst(MIX, asks(100), dialect=dialect, tools=True)

    assert kinds(taken) == {
        "complete": 70, "rejected": 5, "truncated": 10, "error": 5, "empty": 5, "tool_parse_failed": 5,
    }  # fmt: skip
    # The engine shares our loop here, so that loop is late; elsewhere it would not be.
    on_time = msgspec.structs.replace(taken, loop_lags_seconds=[])
    step = summarise(on_time, Bar(limits=(("visible_ttft", 50.0),)), warm_seconds=0.0)
    assert (step.met, step.measured, step.passed) == (70, 100, False)
    assert step.details["truncated/clean"] == step.details["truncated/reset"] == 5


async def test_thoughts_are_no_visible_token() -> None:
    behaviour = {"text": "a b c d", "reasoning": "x " * 8, "tokens_per_second": 200.0, "first_token_seconds": 0.02}
    taken = await burst(behaviour, asks(8, output=100))

    for sample in taken.samples:
        assert (sample.tokens.reasoning, sample.tokens.output) == (8, 12)
        assert sample.first_visible_seconds - sample.first_token_seconds == pytest.approx(8 / 200, abs=0.03)
    assert summarise(taken, None, warm_seconds=0.0).tokens.hidden_share == pytest.approx(8 / 12)


async def test_what_takes_too_long_is_a_timeout() -> None:
    stalled = await burst({"stall_after_tokens": 2}, asks(2), limits=Limits(window=60.0, idle=0.2))
    hung = await burst({"hang": True}, asks(2), limits=Limits(window=60.0, first_byte=0.2))

    assert {(s.kind.value, s.detail) for s in stalled.samples} == {("timeout", "idle")}
    assert {(s.kind.value, s.detail) for s in hung.samples} == {("timeout", "first_byte")}


async def test_the_slowest_are_waited_for_or_given_up_when_the_bar_is_out_of_reach() -> None:
    slow = {"text": "a b c", "first_token_seconds": 0.8}
    waited = await burst(slow, asks(4), limits=Limits(window=0.2))
    given_up = await burst(slow, asks(4), limits=Limits(window=0.2, deadline=lambda _ask: 0.3))

    assert kinds(waited) == {"complete": 4}
    assert {(s.kind.value, s.detail) for s in given_up.samples} == {("timeout", "bar")}


async def test_a_server_that_is_not_there_is_an_error_and_not_our_own_fault() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        taken = await generator(url, Burst(asks(3), 1), Limits(window=5.0)).play(Load(value=1, unit="c", seed=1))

    assert {(s.kind.value, s.detail) for s in taken.samples} == {("error", "connect")}


async def test_ctrl_c_keeps_what_was_measured() -> None:
    async def work(url: str) -> Taken:
        made = generator(url, Burst(asks(1000), 4), Limits(window=60.0))
        playing = asyncio.create_task(made.play(Load(value=4, unit="c", seed=1)))
        asyncio.get_running_loop().call_later(1.5, made.stop)
        return await playing

    taken = await with_engine({"text": "a b c", "tokens_per_second": 30.0}, work)

    assert taken.interrupted
    assert kinds(taken)["complete"] >= 4
    assert 1 <= kinds(taken)["not_measured"] <= 4
    assert summarise(taken, None).interrupted


async def test_a_generator_that_stood_still_does_not_judge() -> None:
    async def work(url: str) -> Taken:
        made = generator(url, Burst(asks(12), 4), Limits(window=60.0))
        asyncio.get_running_loop().call_later(0.1, clock.sleep, 0.2)
        return await made.play(Load(value=4, unit="c", seed=1))

    taken = await with_engine({"text": "a b c d e f", "tokens_per_second": 20.0}, work)
    step = summarise(taken, Bar(limits=(("visible_ttft", 60.0),)), warm_seconds=0.0)

    assert "generator" in step.late
    assert step.passed is None


async def test_a_connection_that_died_while_it_was_kept_is_no_fault_of_the_server() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(2):  # the second request on a connection finds it closed
            await reader.readuntil(b"}")
            if number:
                break
            body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"completion_tokens":1}}'
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    taken = await generator(url, Burst(asks(3), 1), Limits(window=10.0)).play(Load(value=1, unit="c", seed=1))
    server.close()

    assert kinds(taken) == {"complete": 3}
    assert any(sample.sent_again for sample in taken.samples)


async def test_a_late_request_is_timed_from_when_it_was_due() -> None:
    """A server that stops for a while: who came meanwhile waited, although nobody had been sent."""

    async def work(url: str) -> Taken:
        made = generator(url, Open(find("chat"), 100.0, seed=3), Limits(window=0.6))
        asyncio.get_running_loop().call_later(0.1, clock.sleep, 0.3)
        return await made.play(Load(value=100, unit="rate", seed=3))

    taken = await with_engine({"text": "a"}, work)

    assert max(s.send_lag_seconds for s in taken.samples) > 0.2
    assert all(s.total_seconds >= s.send_lag_seconds for s in taken.samples)
    assert summarise(taken, Bar(limits=(("ttft", 1.0),))).passed is None


async def test_people_think_in_between_and_say_what_the_model_said() -> None:
    chat = find("chat")

    async def work(url: str) -> Taken:
        script = Closed(chat, 3, seed=1, pauses=False, spread_seconds=0.0)
        made = generator(url, script, Limits(window=30.0, requests=12), answers=True)
        return await made.play(Load(value=3, unit="c", seed=1))

    taken = await with_engine({"text": "the answer", "cached_tokens": 7}, work)

    assert len(taken.samples) >= 12
    assert kinds(taken) == {"complete": len(taken.samples)}
    assert {s.tokens.cached for s in taken.samples} == {7}
    lengths = [(s.tokens.prompt, s.asked_prompt_tokens) for s in taken.samples]
    assert all(abs(got - asked) <= max(3, 0.02 * asked) for got, asked in lengths)
