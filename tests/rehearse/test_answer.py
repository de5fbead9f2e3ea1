"""The scripted engine's answers as events, without a socket."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.base.json import Json, JsonObject
from stoker.rehearse.answer import Engine, answer
from stoker.rehearse.event import Crash, Cut, End, Event, Head, Send, Wait
from stoker.rehearse.request import Request, read, tokens_of
from stoker.rehearse.script import Script, parse

ENGINE = Engine(model="m")
TOOL: JsonObject = {
    "name": "f",
    "parameters": {"required": ["city", "n"], "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}},
}
ASK = Request(number=1, dialect="chat", stream=True, prompt_tokens=2)


def events(script: Script, request: Request = ASK, engine: Engine = ENGINE) -> list[Event]:
    return list(answer(request, script, engine))


def frames(script: Script, request: Request = ASK, engine: Engine = ENGINE) -> list[Json]:
    body = b"".join(e.data for e in events(script, request, engine) if isinstance(e, Send))
    return [json.loads(line[6:]) if line != "data: [DONE]" else "done" for line in body.decode().split("\n\n") if line]


def whole(script: Script, request: Request, engine: Engine = ENGINE) -> JsonObject:
    sent = b"".join(e.data for e in events(script, request, engine) if isinstance(e, Send))
    value: JsonObject = json.loads(sent)
    return value


def test_a_stream_has_role_text_finish_usage_and_terminator() -> None:
    found = frames(Script(text="one two"))

    assert [f["choices"][0]["delta"] for f in found[:4]] == [
        {"role": "assistant", "content": ""},
        {"content": "one "},
        {"content": "two"},
        {},
    ]
    assert found[3]["choices"][0]["finish_reason"] == "stop"
    assert found[4]["usage"]["completion_tokens"] == 2
    assert found[5] == "done"


@pytest.mark.parametrize("gone", ["finish", "usage", "done"])
def test_each_ending_can_be_missing(gone: str) -> None:
    script = parse(json.dumps({"missing": [gone]}).encode())
    found = frames(script)
    has = {
        "finish": any(isinstance(f, dict) and f["choices"] and f["choices"][0]["finish_reason"] for f in found),
        "usage": any(isinstance(f, dict) and "usage" in f for f in found),
        "done": "done" in found,
    }

    assert has == {name: name != gone for name in has}


@pytest.mark.parametrize(
    ("script", "last", "tokens"),
    [
        (Script(cut_after_tokens=2), End("abort"), 2),
        (Script(cut_after_tokens=2, cut="reset"), Cut(reset=True), 2),
        (Script(stall_after_tokens=3), Wait(None), 3),
        (Script(crash_after_tokens=0), Crash(), 0),
        (Script(error_after_tokens=1), End("error"), 1),
        (Script(hang=True), Wait(None), 0),
    ],
)
def test_faults_come_where_the_script_says(script: Script, last: Event, tokens: int) -> None:
    found = events(script)

    assert found[-1] == last
    assert sum(e.tokens for e in found if isinstance(e, Send)) == tokens


def test_a_refusal_has_its_status_and_when_to_retry() -> None:
    found = events(Script(status=429, retry_after_seconds=7))

    assert isinstance(found[0], Head)
    assert (found[0].status, found[0].retry_after) == (429, 7)


def test_faults_can_come_to_every_third_request_only() -> None:
    script = Script(status=503, every=3)
    statuses = [events(script, replace(ASK, number=n))[0] for n in range(1, 7)]

    assert [s.status for s in statuses if isinstance(s, Head)] == [200, 200, 503, 200, 200, 503]


def test_tool_calls_are_parsed_unless_the_parser_is_wrong() -> None:
    request = replace(ASK, stream=False, tools=(TOOL,))
    parsed = whole(Script(calls=2), request)["choices"][0]
    assert parsed["finish_reason"] == "tool_calls"
    assert [json.loads(c["function"]["arguments"]) for c in parsed["message"]["tool_calls"]] == [
        {"city": "city", "n": 1}
    ] * 2

    raw = whole(Script(raw_tool_markup=True), request)["choices"][0]
    assert raw["finish_reason"] == "stop"
    assert raw["message"]["content"].startswith("<tool_call>")

    mended = whole(Script(raw_tool_markup=True), request, replace(ENGINE, tool_parser=True))["choices"][0]
    assert mended["finish_reason"] == "tool_calls"


def test_streamed_tool_calls_give_id_and_name_once() -> None:
    found = frames(Script(), replace(ASK, tools=(TOOL,)))
    pieces = [
        c for f in found if isinstance(f, dict) and f["choices"] for c in f["choices"][0]["delta"].get("tool_calls", [])
    ]

    assert [("id" in p, "name" in p["function"]) for p in pieces] == [(True, True), (False, False), (False, False)]
    assert json.loads("".join(p["function"]["arguments"] for p in pieces)) == {"city": "city", "n": 1}


def test_thoughts_come_apart_or_raw() -> None:
    request = replace(ASK, stream=False)
    script = Script(reasoning="let me see")
    parsed = whole(script, request)["choices"][0]["message"]
    raw = whole(msgspec.structs.replace(script, raw_reasoning_markup=True), request)["choices"][0]["message"]

    assert parsed["reasoning_content"] == "let me see"
    assert "<think>" not in parsed["content"]
    assert raw["content"].startswith("<think> let me see </think>")


def test_a_prompt_over_the_context_is_refused() -> None:
    found = events(Script(), replace(ASK, prompt_tokens=11), replace(ENGINE, context_tokens=10))

    assert isinstance(found[0], Head)
    assert found[0].status == 400


def test_time_goes_by_as_the_script_says() -> None:
    waits = [
        e.seconds
        for e in events(Script(text="a b", first_token_seconds=0.5, tokens_per_second=4))
        if isinstance(e, Wait)
    ]

    assert waits == [0.5, 0.25, 0.25]


def test_requests_are_read_in_each_dialect() -> None:
    chat = read(
        b'{"stream":true,"max_completion_tokens":3,'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"a b"}]}]}',
        dialect="chat",
        number=1,
    )
    assert chat == Request(number=1, dialect="chat", stream=True, prompt_tokens=2, max_tokens=3, usage=False)
    embed = read(b'{"input":["a","b c"]}', dialect="embeddings", number=1)
    assert embed is not None
    assert (embed.inputs, embed.prompt_tokens) == (2, 3)
    assert read(b"[]", dialect="chat", number=1) is None


@given(limit=st.integers(1, 30), wanted=st.integers(1, 40))
def test_the_limit_holds_and_is_told(limit: int, wanted: int) -> None:
    request = replace(ASK, stream=False, max_tokens=limit)
    body = whole(Script(tokens=wanted), request)
    choice = body["choices"][0]

    assert len(tokens_of(choice["message"]["content"] or "")) == min(limit, wanted)
    assert choice["finish_reason"] == ("length" if wanted > limit else "stop")


def test_a_wrong_script_names_the_field() -> None:
    with pytest.raises(Invalid, match="stall"):
        parse(b'{"stall": 1}')


def test_a_rota_gives_each_request_its_own_fault() -> None:
    script = parse(b'{"rota": [{}, {"status": 429}, {"empty": true}]}')
    found = [events(script, replace(ASK, number=n)) for n in range(1, 7)]

    assert [each[0].status for each in found if isinstance(each[0], Head)] == [200, 429, 200] * 2
    assert [sum(e.tokens for e in each if isinstance(e, Send)) for each in found] == [11, 0, 0] * 2


def test_a_rota_with_a_wrong_word_is_refused() -> None:
    with pytest.raises(Invalid, match="stattus"):
        parse(b'{"rota": [{"stattus": 429}]}')
