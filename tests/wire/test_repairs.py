"""What engines get wrong in the calls that they stream, and what a client sees of it."""

import msgspec
import openai
import pytest
from tests.wire.pair import begin, chat_events, delta, fed, recorded, tool

from stoker.facts.ending import Outcome

RIGHT = chat_events(
    tool(0, id="a", type="function", name="f", arguments=""),
    tool(0, arguments='{"x":1}'),
    tool(1, id="b", type="function", name="g", arguments="{}"),
    delta("tool_calls"),
)
WANT = [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def piece(index: object, **fields: object) -> dict[str, object]:
    return tool(index, **fields)


@pytest.mark.parametrize(
    ("wire", "repairs"),
    [
        pytest.param(RIGHT, (), id="nothing is wrong"),
        pytest.param(
            chat_events(
                piece(None, id="a", type="function", name="f", arguments=""),
                piece(None, arguments='{"x":1}'),
                piece(None, id="b", type="function", name="g", arguments="{}"),
                delta("tool_calls"),
            ),
            ("tool_index",),
            id="no index: Mistral, Gemini",
        ),
        pytest.param(
            chat_events(
                piece(0, id="a", type="function", name="f", arguments=""),
                piece(0, arguments='{"x":1}'),
                piece(0, id="b", type="function", name="g", arguments="{}"),
                delta("tool_calls"),
            ),
            ("tool_index",),
            id="every call has index 0",
        ),
        pytest.param(
            chat_events(
                piece(0, id="a", type="function", name="f", arguments=""),
                piece(0, id="a", type="function", name="f", arguments='{"x"'),
                piece(0, id="a", type="function", name="f", arguments=":1}"),
                piece(1, id="b", type="function", name="g", arguments="{}"),
                delta("tool_calls"),
            ),
            ("tool_id",),
            id="id, type and name in every piece",
        ),
        pytest.param(
            chat_events(
                piece(0, id="a", type="function", name="f", arguments=""),
                piece(0, id=None, type=None, name=None, arguments='{"x":1}'),
                piece(1, id="b", type="function", name="g", arguments="{}"),
                delta("tool_calls"),
            ),
            ("tool_id",),
            id="null in every piece: SGLang",
        ),
        pytest.param(
            chat_events(
                piece(0, id="a", type="function", name="f", arguments=""),
                piece(0, name=None, arguments='{"x":1}'),
                piece(1, id="b", type="function", name="g", arguments=""),
                delta("stop"),
            ),
            ("tool_name", "finish_reason", "tool_arguments"),
            id="a null name, no arguments, and finished",
        ),
        pytest.param(
            chat_events(
                piece(0, id="a", type="function", name="f", arguments={"x": 1}),
                delta("stop", tool_calls=[{"index": 1, "id": "b", "type": "function", "function": {"name": "g"}}]),
            ),
            ("tool_arguments", "finish_reason"),
            id="an object, and all of a call in the last chunk: Ollama",
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_repairs(wire: bytes, repairs: tuple[str, ...], size: int) -> None:
    follow = begin("chat", "chat")
    out = fed(follow, wire, size=size)

    assert follow.repairs == repairs
    assert follow.ending(cut="").outcome is Outcome.TOOL_CALLS
    assert follow.ending(cut="").flags == ()
    assert (out == wire) == (not repairs)
    calls: dict[int, dict[str, object]] = {}
    for event in out.split(b"\n\n")[:-2]:
        for choice in msgspec.json.decode(event[6:])["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                if call["index"] in calls:  # id, type and name come once
                    assert set(call) | set(call["function"]) == {"index", "function", "arguments"}
                calls.setdefault(call["index"], call)
    again = begin("chat", "chat", stream=False)
    fed(again, out)
    body = openai.types.chat.ChatCompletion.model_validate_json(again.body())
    made = body.choices[0].message.tool_calls or []
    found = [(c.id, c.function.name, c.function.arguments.replace(" ", "")) for c in made if c.type == "function"]
    assert found == WANT
    assert body.choices[0].finish_reason == "tool_calls"
    for client in ("messages", "responses"):  # a translation gets the same calls
        other = begin(client, "chat", stream=False)
        fed(other, wire)
        text = other.body().replace(b" ", b"")
        assert all(word in text for word in (b'"f"', b'"g"', b'"a"', b'"b"'))
        assert other.ending(cut="").flags == ()


def test_only_what_is_wrong_changes() -> None:
    good = chat_events(delta(content="1.50"), done=False).replace(b'"1.50"', b'"x","odd":1.50')
    bad = chat_events(piece(None, id="a", type="function", name="f", arguments="{}"), done=False)
    bad = bad.replace(b'"created":5', b'"created": 5.000, "odd": [1.50]')
    out = fed(begin("chat", "chat"), good + bad + chat_events(delta("tool_calls")))

    assert out.startswith(good)
    assert b'"created": 5.000, "odd": [1.50]' in out
    assert b'"index":0' in out.partition(good)[2]


def test_ids_are_made_where_there_are_none() -> None:
    wire = chat_events(tool(0, name="f", arguments="{}"), tool(1, name="g", arguments="{}"), delta("tool_calls"))
    follow = begin("chat", "chat", stream=False)
    fed(follow, wire)
    ids = [c["id"] for c in msgspec.json.decode(follow.body())["choices"][0]["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(ids)


def test_a_call_without_a_name_breaks_a_translation() -> None:
    follow = begin("messages", "chat")
    fed(follow, chat_events(tool(0, id="a", arguments="{}"), delta("tool_calls")))
    assert follow.ending(cut="").outcome is Outcome.TRUNCATED


def test_a_whole_answer_is_repaired() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}
    body = msgspec.json.encode({"choices": [{**choice, "finish_reason": "stop"}], "odd": 1})
    follow = begin("chat", "chat", stream=False, whole=True)
    assert follow.whole(body, 1.0)

    said = msgspec.json.decode(follow.body())
    assert said["choices"][0]["finish_reason"] == "tool_calls"
    assert said["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert follow.repairs == ("finish_reason", "tool_arguments")
    assert follow.ending(cut="").outcome is Outcome.TOOL_CALLS


def test_a_real_engine_needs_no_repair() -> None:
    follow = begin("chat", "chat")
    fed(follow, recorded("llamacpp_b11549_tool_stream.txt"), size=11)
    assert follow.repairs == ()
