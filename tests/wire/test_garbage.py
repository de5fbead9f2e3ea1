"""Nothing that an engine or a client sends may raise anything but Invalid, in any pair of dialects."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.pair import AGENT, DIALECTS, begin, fed

from stoker.base.errors import Invalid
from stoker.wire.pairs import Pair, prepare, read

PAIRS = [(client, engine) for client in DIALECTS for engine in DIALECTS]
BY_ENGINE = {name: AGENT if name == "chat" else fed(begin(name, "chat"), AGENT) for name in DIALECTS}
WORDS = st.sampled_from(
    """type message messages content role user assistant system tool tools tool_calls function name arguments id index
    choices delta finish_reason stop usage error response output item input text thinking tool_use tool_result source
    input_image image_url url content_block response.completed message_delta message_start content_block_delta
    function_call call_id output_text reasoning summary namespace base64 data document tool_choice stream model
    content_block_start response.output_item.added stop_reason message_stop sequence_number output_index""".split()  # noqa: SIM905 -- a list of seventy would hide the words
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def finish(client: str, engine: str, data: bytes, *, stream: bool) -> None:
    follow = begin(client, engine, stream=stream, engine="vllm", ask={"tools": [{"type": "function"}]})
    fed(follow, data, size=97)
    follow.keep_alive()
    follow.failure("x", kind="y", code="z")
    ending = follow.ending(cut="")
    assert follow.tokens().output >= 0
    if not stream and ending.outcome in ("complete", "length", "tool_calls", "refusal"):
        msgspec.json.decode(follow.body())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("client", "engine"), PAIRS)
@settings(max_examples=15, deadline=None)
@given(at=st.floats(0, 1), new=st.binary(max_size=3), gone=st.integers(0, 40))
def test_damaged_streams(client: str, engine: str, stream: bool, at: float, new: bytes, gone: int) -> None:  # noqa: FBT001
    data = BY_ENGINE[engine]
    place = int(at * len(data))
    finish(client, engine, data[:place] + new + data[place + gone :], stream=stream)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("client", "engine"), PAIRS)
@settings(max_examples=15, deadline=None)
@given(events=st.lists(st.dictionaries(WORDS, VALUES, max_size=6), max_size=5))
def test_events_of_any_shape(client: str, engine: str, stream: bool, events: list[dict[str, Any]]) -> None:  # noqa: FBT001
    data = b"".join(b"data: %b\n\n" % msgspec.json.encode(event) for event in events)
    cut = BY_ENGINE[engine].index(b"\n\n", 2000) + 2
    finish(client, engine, BY_ENGINE[engine][:cut] + data + BY_ENGINE[engine][cut:], stream=stream)


@pytest.mark.parametrize(("client", "engine"), PAIRS)
@settings(max_examples=15, deadline=None)
@given(body=st.dictionaries(WORDS, VALUES, max_size=6))
def test_whole_answers_of_any_shape(client: str, engine: str, body: dict[str, Any]) -> None:
    follow = begin(client, engine, stream=False, whole=True)
    if follow.whole(msgspec.json.encode(body), 1.0) and follow.ending(cut="").outcome == "complete":
        follow.body()


@pytest.mark.parametrize(("client", "engine"), PAIRS)
@settings(max_examples=40, deadline=None)
@given(body=st.dictionaries(WORDS, VALUES, max_size=6), messages=VALUES)
def test_requests_of_any_shape(client: str, engine: str, body: dict[str, Any], messages: object) -> None:
    conversation = {"input": messages} if client == "responses" else {"messages": messages}
    data = msgspec.json.encode({**body, **conversation, "model": "m"})
    try:
        asked = read(client, data)
        begin(client, engine, ask={**body, **conversation})
        pair = Pair(client=client, upstream=engine, engine="vllm")
        change = prepare(data, asked, pair=pair, cap=9, model="real", stream=True)
    except Invalid:
        return
    assert msgspec.json.decode(change.body)["model"] == "real"
