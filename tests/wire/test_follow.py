"""Recorded answers of real engines, followed and put together; and made-up ones that go wrong."""

from pathlib import Path

import msgspec
import pytest

from stoker.facts.ending import Flag, Outcome
from stoker.wire import errors
from stoker.wire.aggregate import Aggregate
from stoker.wire.follow import Follow
from stoker.wire.say.voices import OPENAI
from stoker.wire.scan.chat import Chat
from stoker.wire.scan.how import How

DATA = Path(__file__).parents[1] / "data" / "streams"


def recorded(name: str) -> bytes:
    data = (DATA / name).read_bytes().replace(b"\r\n", b"\n")
    return data.partition(b"\n\n")[2].lstrip() if data.startswith(b"HTTP") else data


def chat(*, strip_usage: bool = False, aggregate: bool = False) -> Follow:
    return Follow(Chat(How(strip_usage=strip_usage, aggregate=aggregate)), OPENAI)


def follow(data: bytes, *, size: int, strip: bool = True, cut: str = "") -> tuple[Follow, bytes]:
    watcher, out = chat(strip_usage=strip), b""
    for at in range(0, len(data), size):
        out += watcher.feed(data[at : at + size], float(at + 1))
    return watcher, out


@pytest.mark.parametrize("size", [1, 13, 100_000])
@pytest.mark.parametrize(
    ("name", "outcome", "prompt", "output", "cached"),
    [
        ("llamacpp_b11549_chat_stream.txt", Outcome.COMPLETE, 34, 11, 24),
        ("llamacpp_b11549_tool_stream.txt", Outcome.TOOL_CALLS, 175, 24, 174),
        ("vllm_0.32_chat_stream.txt", Outcome.LENGTH, 18, 24, 0),
    ],
)
def test_recorded(name: str, outcome: Outcome, prompt: int, output: int, cached: int, size: int) -> None:
    data = recorded(name)
    watcher, out = follow(data, size=size)

    ending, tokens = watcher.ending(cut=""), watcher.tokens()
    assert (ending.outcome, ending.flags) == (outcome, ())
    assert (tokens.prompt, tokens.output, tokens.cached, tokens.estimated) == (prompt, output, cached, False)
    assert tokens.visible + tokens.tool + tokens.reasoning == output
    assert watcher.first_token_at > 0
    assert b'"usage":{' not in out
    kept = [event for event in data.split(b"\n\n") if event.strip() and b'"choices":[]' not in event]
    assert out == b"".join(event + b"\n\n" for event in kept)
    assert follow(data, size=size, strip=False)[1] == b"".join(e + b"\n\n" for e in data.split(b"\n\n") if e.strip())


def test_tool_call_is_put_together() -> None:
    watcher = chat(aggregate=True)
    assert watcher.feed(recorded("llamacpp_b11549_tool_stream.txt"), 1.0) == b""
    answer = msgspec.json.decode(watcher.body())

    message = answer["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"
    assert "city" in msgspec.json.decode(message["tool_calls"][0]["function"]["arguments"])
    assert "index" not in message["tool_calls"][0]
    assert (answer["object"], answer["choices"][0]["finish_reason"]) == ("chat.completion", "tool_calls")
    assert answer["timings"]["predicted_n"] == 24


def events(*chunks: object, done: bool = True) -> bytes:
    wire = b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks)
    return wire + b"data: [DONE]\n\n" if done else wire


def delta(index: int = 0, finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


WHOLE = events(delta(content="x"), delta(finish="stop"))


def call(arguments: str) -> dict[str, object]:
    return delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}])


@pytest.mark.parametrize(
    ("wire", "cut", "outcome", "flags"),
    [
        pytest.param(events(delta(content="x"), delta(finish="stop")), "", Outcome.COMPLETE, (), id="complete"),
        pytest.param(events(delta(content="x"), delta(finish="content_filter")), "", Outcome.REFUSAL, (), id="refusal"),
        pytest.param(events(delta(finish="stop")), "", Outcome.COMPLETE, (Flag.EMPTY,), id="empty"),
        pytest.param(events(delta(content="x"), done=False), "", Outcome.TRUNCATED, (), id="ends without finish"),
        pytest.param(events(delta(content="x", finish="stop"), done=False), "", Outcome.COMPLETE, (), id="finish only"),
        pytest.param(
            events(delta(content="x", finish="stop"), done=False), "reset", Outcome.TRUNCATED, (), id="finish, reset"
        ),
        pytest.param(
            events(delta(0, "stop", content="x"), delta(1, content="x"), done=False),
            "",
            Outcome.TRUNCATED,
            (),
            id="one of two",
        ),
        pytest.param(events({"error": {"message": "x"}}), "", Outcome.ERROR, (Flag.EMPTY,), id="error event"),
        pytest.param(
            events(delta(content="x"), done=False) + b"data: {broken\n\n", "", Outcome.TRUNCATED, (), id="no JSON"
        ),
        pytest.param(
            events(call('{"a":'), delta(finish="tool_calls")),
            "",
            Outcome.TOOL_CALLS,
            (Flag.TOOL_PARSE_FAILED,),
            id="bad call",
        ),
        pytest.param(
            events(call('{"a":'), call("1}"), delta(finish="tool_calls")),
            "",
            Outcome.TOOL_CALLS,
            (),
            id="call in pieces",
        ),
        pytest.param(
            events(delta(content=[{"type": "text"}]), delta(finish="stop")),
            "",
            Outcome.COMPLETE,
            (),
            id="content parts",
        ),
    ],
)
def test_endings(wire: bytes, cut: str, outcome: Outcome, flags: tuple[Flag, ...]) -> None:
    ending = follow(wire, size=7)[0].ending(cut=cut)

    assert (ending.outcome, ending.flags) == (outcome, flags)


def test_nothing_follows_the_terminator_and_a_last_line_end_may_lack() -> None:
    assert follow(WHOLE + b"data: {}\n\n", size=9)[1] == WHOLE
    watcher, out = follow(events(delta(finish="stop"))[:-2], size=5)
    assert out + watcher.flush(1.0) == events(delta(finish="stop"))
    half = chat(strip_usage=False)
    half.feed(b'data: {"cho', 1.0)
    assert half.flush(1.0) == b""


def test_reasoning_and_gaps_are_told_apart() -> None:
    watcher = chat(strip_usage=False)
    for at, chunk in ((1.0, delta(reasoning_content="hm")), (2.0, delta(content="x")), (5.0, delta(content="y"))):
        watcher.feed(events(chunk, done=False), at)

    assert (watcher.first_token_at, watcher.first_visible_at, watcher.last_token_at) == (1.0, 2.0, 5.0)
    gaps = watcher.gaps()
    assert (gaps.count, gaps.mean, gaps.longest) == (2, 2.0, 3.0)
    tokens = watcher.tokens()
    assert (tokens.reasoning, tokens.visible, tokens.output, tokens.estimated) == (1, 2, 3, True)


def test_log_probabilities_and_unknown_fields_survive() -> None:
    together = Aggregate()
    for token in "ab":
        piece = {"index": 0, "delta": {"content": token, "new": token}, "logprobs": {"content": [{"token": token}]}}
        together.add(
            msgspec.json.encode({"id": "1", "object": "chat.completion.chunk", "choices": [piece], "extra": token})
        )
    choice = msgspec.json.decode(together.body())["choices"][0]

    assert choice["message"]["content"] == "ab"
    assert choice["message"]["new"] == "b"
    assert [item["token"] for item in choice["logprobs"]["content"]] == ["a", "b"]


def test_completions_are_put_together() -> None:
    together = Aggregate()
    for text, finish in (("a", None), ("b", "length")):
        piece = {"index": 0, "text": text, "finish_reason": finish, "logprobs": {"tokens": [text]}}
        together.add(msgspec.json.encode({"object": "text_completion", "choices": [piece]}))
    answer = msgspec.json.decode(together.body())

    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {"index": 0, "text": "ab", "finish_reason": "length", "logprobs": {"tokens": ["a", "b"]}}
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"as it is"}}', "as it is"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"error":"short"}', "short"),
        (b"<html>", "<html>"),
        (b"", "the engine answered 418"),
        (b"\xff", "\ufffd"),
    ],
)
def test_engine_errors_get_the_dialects_shape(body: bytes, message: str) -> None:
    shaped = errors.in_shape(418, body)

    assert msgspec.json.decode(shaped)["error"]["message"] == message
    assert errors.frame_of(shaped).count(b"\n") == 2


def test_a_terminator_alone_is_no_answer() -> None:
    watcher = chat()

    assert watcher.feed(b"data: [DONE]\n\n", 1.0) == b""
    assert watcher.ending(cut="").outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("aggregate", [True, False])
def test_an_event_of_null_is_none(*, aggregate: bool) -> None:
    end = b'data: {"choices":[{"index":0,"text":"a","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    watcher = chat(aggregate=aggregate)

    out = watcher.feed(b"data: null\n\n" + end, 1.0)

    assert out == (b"" if aggregate else end)
    assert watcher.ending(cut="").outcome is Outcome.COMPLETE
