"""What holds for every pair of dialects, however the bytes are cut; and how answers end."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.pair import AGENT, DIALECTS, begin, chat_events, delta, fed, recorded, tool, usage

from stoker.base.errors import Invalid
from stoker.facts.ending import Flag, Outcome
from stoker.wire.pairs import Pair, prepare, read

PAIRS = [(client, engine) for client in DIALECTS for engine in DIALECTS]
BY_ENGINE = {name: AGENT if name == "chat" else fed(begin(name, "chat"), AGENT) for name in DIALECTS}
TEXT = "I shall \u201clook\u201d \U0001f50e now.\n"


@pytest.mark.parametrize(("client", "engine"), PAIRS)
def test_cuts_change_nothing(client: str, engine: str) -> None:
    data = BY_ENGINE[engine]
    whole = fed(begin(client, engine), data)
    for size in (1, 2, 3, 64, 999):
        follow = begin(client, engine)
        assert fed(follow, data, size=size) == whole
        tokens = follow.tokens()
        assert follow.ending(cut="").outcome is Outcome.TOOL_CALLS
        assert (tokens.prompt, tokens.cached, tokens.output, tokens.estimated) == (100, 64, 30, False)
        assert follow.ending(cut="").flags == ()
    assert client != engine or whole == data


@pytest.mark.parametrize(("client", "engine"), PAIRS)
def test_line_ends_and_comments_change_nothing(client: str, engine: str) -> None:
    data = BY_ENGINE[engine]
    crlf = b": a comment\r\n\r\n" + data.replace(b"\n", b"\r\n")
    if client != engine:
        assert fed(begin(client, engine), crlf, size=5) == fed(begin(client, engine), data)
    follow = begin(client, engine)
    follow.feed(b': a comment\n\nevent: ping\ndata: {"type": "ping"}\n\n' if engine == "messages" else b": c\n\n", 1.0)
    assert (follow.chunks, follow.first_token_at) == (0, 0.0)


def test_an_event_over_several_lines_is_one() -> None:
    spread = AGENT.replace(b'"choices":', b'\ndata: "choices":')
    assert fed(begin("messages", "chat"), spread) == fed(begin("messages", "chat"), AGENT)


@pytest.mark.parametrize(("client", "engine"), PAIRS)
@given(part=st.floats(0.0, 0.999))
def test_a_cut_answer_is_never_whole(client: str, engine: str, part: float) -> None:
    data = BY_ENGINE[engine]
    end = data.rindex(b"data: ") if engine != "chat" else data.index(b'"finish_reason":"tool_calls"')
    follow = begin(client, engine)
    out = fed(follow, data[: int(end * part)], size=50)

    assert follow.ending(cut="").outcome is Outcome.TRUNCATED
    assert follow.ending(cut="reset").detail == "reset"
    for word in (b"message_stop", b"[DONE]", b"response.completed", b'"stop"', b"end_turn"):
        assert word not in out


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), min_size=1, max_size=6),
    st.integers(1, 40),
)
def test_any_text_survives_the_way_there_and_back(texts: list[str], size: int) -> None:
    data = chat_events(*(delta(content=text) for text in texts), delta("stop"))
    for through in ("messages", "responses"):
        follow = begin("chat", through, stream=False)
        fed(follow, fed(begin(through, "chat"), data, size=size), size=size)
        message = msgspec.json.decode(follow.body())["choices"][0]["message"]
        assert message["content"] == "".join(texts)


@pytest.mark.parametrize("client", DIALECTS)
def test_half_a_surrogate_pair_passes_and_is_never_lost_in_silence(client: str) -> None:
    wire = chat_events(delta(content="@"), delta(content="#"), delta("stop")).replace(b'"@"', b'"\\ud83d"')
    follow = begin(client, "chat")
    out = fed(follow, wire)

    assert follow.ending(cut="").outcome is (Outcome.COMPLETE if client == "chat" else Outcome.TRUNCATED)
    assert client != "chat" or out == wire
    whole = begin("chat", "chat", stream=False)
    fed(whole, wire)
    assert whole.ending(cut="").outcome is Outcome.TRUNCATED


def test_text_that_is_no_utf8_breaks_a_translation() -> None:
    wire = chat_events(delta(content="@"), delta("stop")).replace(b'"@"', b'"\xff"')
    whole = begin("chat", "chat", stream=False)
    fed(whole, wire)
    assert whole.ending(cut="").outcome is Outcome.TRUNCATED
    follow = begin("messages", "chat")
    fed(follow, wire)
    assert follow.ending(cut="").outcome is Outcome.TRUNCATED


@pytest.mark.parametrize(
    ("wire", "outcome"),
    [
        pytest.param(chat_events(delta(content="x")), Outcome.TRUNCATED, id="chat: terminator without finish"),
        pytest.param(chat_events(delta(content="x"), delta("abort")), Outcome.ERROR, id="chat: the engine gave up"),
        pytest.param(chat_events(delta(content="x"), delta("length")), Outcome.LENGTH, id="chat: length"),
        pytest.param(
            chat_events(delta(content="x"), delta("stop"), done=False), Outcome.COMPLETE, id="chat: no [DONE]"
        ),
        pytest.param(
            b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'
            b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
            Outcome.TRUNCATED,
            id="messages: stop without a reason",
        ),
        pytest.param(
            BY_ENGINE["messages"].partition(b"event: message_stop")[0], Outcome.TRUNCATED, id="messages: no stop"
        ),
        pytest.param(
            BY_ENGINE["responses"].partition(b"event: response.completed")[0], Outcome.TRUNCATED, id="responses: no end"
        ),
    ],
)
@pytest.mark.parametrize("client", DIALECTS)
def test_endings(wire: bytes, outcome: Outcome, client: str) -> None:
    engine = "messages" if b"message_st" in wire[:900] else "responses" if b"event: response" in wire else "chat"
    follow = begin(client, engine)
    out = fed(follow, wire, size=11)

    assert follow.ending(cut="").outcome is outcome
    if outcome is Outcome.TRUNCATED:
        assert b"[DONE]" not in out
        assert b"message_stop" not in out
    if outcome is Outcome.LENGTH:
        assert {"chat": b'"length"', "messages": b'"max_tokens"', "responses": b"max_output_tokens"}[client] in out


ERROR = {
    "chat": b'data: {"error":{"message":"out of memory","type":"server_error","code":"oom"}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"out of memory"}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","code":"server_error","message":"out of memory"}\n\n',
}


@pytest.mark.parametrize(("client", "engine"), PAIRS)
def test_an_engines_own_error_is_said_in_the_clients_dialect(client: str, engine: str) -> None:
    data = BY_ENGINE[engine]
    follow = begin(client, engine)
    out = follow.feed(data[: data.index(b"\n\n", len(data) // 2) + 2] + ERROR[engine], 1.0)

    assert (follow.ending(cut="").outcome, follow.ending(cut="").detail) == (Outcome.ERROR, "in_band")
    last = out.rstrip().rpartition(b"\n\n")[2]
    assert b"out of memory" in last
    head = {"chat": b'data: {"error":', "messages": b"event: error\n", "responses": b"event: response.failed\n"}
    assert last.startswith(head[client])
    assert b"message_stop" not in out


def test_reasoning_tokens_and_time_to_what_is_seen() -> None:
    follow = begin("messages", "chat", engine="vllm")
    chunks = (delta(content="<th"), delta(content="ink>\nhm"), delta(content="m</think>\n\nYes"), delta(content="."))
    for at, chunk in enumerate(chunks):
        follow.feed(chat_events(chunk, done=False), float(at + 1))
    out = fed(follow, chat_events(delta("stop"), usage(9, 9)))

    assert (follow.first_token_at, follow.first_visible_at) == (2.0, 3.0)
    assert follow.tokens().reasoning == 2  # though the engine, which has no parser, says 0
    plain_ = begin("chat", "chat", stream=False, engine="vllm")
    fed(plain_, chat_events(*chunks, delta("stop")))
    assert msgspec.json.decode(plain_.body())["choices"][0]["message"]["content"].startswith("<think>")
    assert b"<think>" not in out
    whole = begin("messages", "chat", stream=False, engine="vllm")
    fed(whole, chat_events(*chunks, delta("stop")), size=3)
    content = msgspec.json.decode(whole.body())["content"]
    assert [(block["type"], block.get("thinking") or block.get("text")) for block in content] == [
        ("thinking", "\nhmm"),
        ("text", "Yes."),
    ]


@given(st.lists(st.integers(1, 6), max_size=12))
def test_think_tags_are_found_wherever_they_are_cut(cuts: list[int]) -> None:
    text, pieces, at = " <think>a<b</thin</think> c<think>", [], 0
    for cut in cuts:
        pieces.append(text[at : at + cut])
        at += cut
    pieces.append(text[at:])
    follow = begin("messages", "chat", stream=False, engine="sglang")
    fed(follow, chat_events(*(delta(content=piece) for piece in pieces if piece), delta("stop")))
    content = msgspec.json.decode(follow.body())["content"]

    assert [block.get("thinking", block.get("text")) for block in content] == ["a<b</thin", "c<think>"]


@pytest.mark.parametrize("mark", ["<tool_call>", "<function=f>", "[TOOL_CALLS]", "<|python_tag|>"])
@pytest.mark.parametrize("client", DIALECTS)
def test_a_call_left_in_the_text_is_flagged_when_tools_were_asked(client: str, mark: str) -> None:
    wire = chat_events(delta(content="well <b> " + mark[:4]), delta(content=mark[4:] + "{}"), delta("stop"))
    asked = begin(client, "chat", ask={"tools": [{"type": "function", "function": {"name": "f"}}]})
    fed(asked, wire)
    assert asked.ending(cut="").flags == (Flag.TOOL_PARSE_FAILED,)
    other = begin(client, "chat")
    fed(other, wire)
    assert other.ending(cut="").flags == ()


def test_stop_sequences_and_probabilities_are_told() -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}]}
    out = fed(begin("messages", "chat", engine="vllm"), chat_events(delta(content="x"), last))
    assert b'"stop_reason":"stop_sequence","stop_sequence":"END"' in out

    tokens = [{"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}]
    piece = {"choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": tokens}}]}
    follow = begin("responses", "chat", stream=False)
    fed(follow, chat_events(piece, delta("stop")))
    assert msgspec.json.decode(follow.body())["output"][0]["content"][0]["logprobs"] == tokens
    back = begin("chat", "responses", stream=False)
    fed(back, fed(begin("responses", "chat"), chat_events(piece, delta("stop"))))
    assert msgspec.json.decode(back.body())["choices"][0]["logprobs"]["content"] == tokens


@pytest.mark.parametrize(("client", "engine"), PAIRS)
def test_an_answer_in_one_piece(client: str, engine: str) -> None:
    made = begin(engine, "chat", stream=False)
    fed(made, AGENT)
    body = made.body()
    follow = begin(client, engine, stream=False, whole=True)
    assert follow.whole(body, 1.0)

    tokens = follow.tokens()
    assert follow.ending(cut="").outcome is Outcome.TOOL_CALLS
    assert (tokens.prompt, tokens.cached, tokens.output) == (100, 64, 30)
    if client == engine:
        assert follow.body() == body
    else:
        direct = begin(client, "chat", stream=False)
        fed(direct, AGENT)
        said, want = (msgspec.json.decode(one) for one in (follow.body(), direct.body()))
        assert said.get("content") == want.get("content")
        message, wanted = ((one.get("choices") or [{}])[0].get("message", {}) for one in (said, want))
        assert all(message.get(name) == wanted.get(name) for name in {*message, *wanted})
    assert not begin(client, engine, stream=False, whole=True).whole(b"<html>", 1.0)


def test_recorded_chat_becomes_a_message() -> None:
    follow = begin("messages", "chat", stream=False)
    fed(follow, recorded("llamacpp_b11549_chat_stream.txt"), size=17)
    message = msgspec.json.decode(follow.body())

    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"] == 34


@pytest.mark.parametrize(
    ("dialect", "body", "cap"),
    [
        ("chat", {"max_tokens": 9}, b'"max_tokens":5'),
        ("messages", {"max_tokens": 9, "messages": []}, b'"max_tokens":5'),
        ("messages", {"messages": []}, b'"max_tokens":5'),
        ("responses", {"input": "x"}, b'"max_output_tokens":5'),
    ],
)
def test_the_same_dialect_gets_splices(dialect: str, body: dict[str, object], cap: bytes) -> None:
    data = msgspec.json.encode({"model": "m", "unknown": 1.50, **body})
    pair = Pair(client=dialect, upstream=dialect)
    change = prepare(data, read(dialect, data), pair=pair, cap=5, model="real", stream=True)

    assert cap in change.body
    assert b'"model":"real"' in change.body
    assert (b"stream_options" in change.body) == (dialect == "chat")
    assert msgspec.json.decode(change.body)["unknown"] == 1.5


def test_unknown_dialects_are_refused() -> None:
    with pytest.raises(Invalid, match="morse"):
        read("morse", b"{}")
    body = b'{"model":"m","prompt":"x"}'
    with pytest.raises(Invalid, match="completions cannot be translated to chat"):
        prepare(
            body,
            read("completions", body),
            pair=Pair(client="completions", upstream="chat"),
            cap=1,
            model="m",
            stream=False,
        )


def test_a_half_made_call_is_kept_apart() -> None:
    wire = chat_events(tool(0, id="a", name="f", arguments='{"x":'), delta("tool_calls"))
    follow = begin("messages", "chat", stream=False)
    fed(follow, wire)
    assert follow.ending(cut="").flags == (Flag.TOOL_PARSE_FAILED,)
    assert msgspec.json.decode(follow.body())["content"][0]["input"] == {"unparsed_arguments": '{"x":'}
