"""Each dialect of the scripted engine, read by the vendors' own clients: what they accept is what it speaks."""

import json

import anthropic
import httpx2
import openai
import pytest

from stoker.rehearse.answer import Engine, answer
from stoker.rehearse.event import Head, Send
from stoker.rehearse.request import PATHS, read
from stoker.rehearse.script import Script

TOOL = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]}
PARIS = json.dumps({"city": "Paris"})
CALLING = Script(tool_names=("weather",), tool_arguments={"city": "Paris"}, reasoning="let me see", preface="I look.")
ASK = [{"role": "user", "content": "How is the weather in Paris?"}]


def transport(script: Script) -> httpx2.MockTransport:
    """Carry requests to the engine's answers without a socket."""

    def carry(request: httpx2.Request) -> httpx2.Response:
        asked = read(request.content, dialect=PATHS[request.url.path], number=1)
        assert asked is not None
        events = list(answer(asked, script, Engine(model="m", context_tokens=100)))
        head = next(e for e in events if isinstance(e, Head))
        kind = "application/json" if head.length is not None else "text/event-stream"
        body = [e.data for e in events if isinstance(e, Send)]
        return httpx2.Response(head.status, headers={"content-type": kind}, content=b"".join(body))

    return httpx2.MockTransport(carry)


def openai_of(script: Script) -> openai.OpenAI:
    http = httpx2.Client(transport=transport(script))
    return openai.OpenAI(api_key="k", base_url="http://engine/v1", http_client=http, max_retries=0)


def anthropic_of(script: Script) -> anthropic.Anthropic:
    http = httpx2.Client(transport=transport(script))
    return anthropic.Anthropic(api_key="k", base_url="http://engine", http_client=http, max_retries=0)


def test_messages_stream_text_thoughts_and_a_call() -> None:
    tools = [{"name": "weather", "description": "w", "input_schema": TOOL}]
    with anthropic_of(CALLING).messages.stream(model="m", max_tokens=50, messages=ASK, tools=tools) as stream:
        final = stream.get_final_message()

    assert [block.type for block in final.content] == ["thinking", "text", "tool_use"]
    assert final.content[0].thinking == "let me see"
    assert final.content[1].text == "I look."
    assert final.content[2].input == {"city": "Paris"}
    assert final.stop_reason == "tool_use"
    assert (final.usage.input_tokens, final.usage.output_tokens) == (6, 8)


def test_messages_answer_whole_as_they_stream() -> None:
    tools = [{"name": "weather", "description": "w", "input_schema": TOOL}]
    asked = {"model": "m", "max_tokens": 50, "messages": ASK, "tools": tools}
    with anthropic_of(CALLING).messages.stream(**asked) as stream:
        streamed = stream.get_final_message()

    whole = anthropic_of(CALLING).messages.create(**asked)

    assert [block.to_dict() for block in whole.content] == [block.to_dict() for block in streamed.content]
    assert (whole.stop_reason, whole.usage) == (streamed.stop_reason, streamed.usage)


def test_the_result_of_a_tool_brings_the_final_text() -> None:
    result = [
        *ASK,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun"}]},
    ]
    tools = [{"name": "weather", "description": "w", "input_schema": TOOL}]
    final = anthropic_of(Script(text="Sun in Paris.")).messages.create(
        model="m", max_tokens=50, messages=result, tools=tools
    )

    assert (final.content[0].text, final.stop_reason) == ("Sun in Paris.", "end_turn")


def test_messages_stop_where_they_are_told() -> None:
    client = anthropic_of(Script(text="one two STOP three"))
    short = client.messages.create(model="m", max_tokens=1, messages=ASK)
    stopped = client.messages.create(model="m", max_tokens=50, messages=ASK, stop_sequences=["STOP"])
    counted = client.messages.count_tokens(model="m", messages=ASK)

    assert (short.content[0].text, short.stop_reason) == ("one ", "max_tokens")
    assert (stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence) == (
        "one two ",
        "stop_sequence",
        "STOP",
    )
    assert counted.input_tokens == 6


def test_responses_stream_text_thoughts_and_calls() -> None:
    script = Script(tool_names=("weather",), tool_arguments={"city": "Paris"}, reasoning="let me see", calls=2)
    tools = [{"type": "function", "name": "weather", "parameters": TOOL, "strict": False}]
    with openai_of(script).responses.stream(model="m", input="How is it?", tools=tools) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()

    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "function_call", "function_call"]
    assert {item.arguments for item in final.output[1:]} == {PARIS}
    assert len({item.call_id for item in final.output[1:]}) == 2
    assert final.usage.output_tokens_details.reasoning_tokens == 3


def test_responses_are_numbered_and_equal_the_whole_answer() -> None:
    client = openai_of(Script(text="one two", cached_tokens=1))
    with client.responses.create(model="m", input="How is it?", stream=True) as stream:
        events = list(stream)
    whole = client.responses.create(model="m", input="How is it?")

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response == whole
    assert whole.output_text == "one two"
    assert whole.usage.input_tokens_details.cached_tokens == 1
    items = [{"type": "function_call_output", "call_id": "c", "output": "sun"}]
    tools = [{"type": "function", "name": "weather", "parameters": TOOL, "strict": False}]
    assert client.responses.create(model="m", input=items, tools=tools).output_text == "one two"


def test_a_limit_leaves_a_response_incomplete() -> None:
    got = openai_of(Script(text="one two")).responses.create(model="m", input="q", max_output_tokens=1)

    assert (got.status, got.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_structured_output_fits_its_schema() -> None:
    import pydantic  # noqa: PLC0415 -- only here

    class Place(pydantic.BaseModel):
        name: str
        people: int
        tags: list[str]

    class Map(pydantic.BaseModel):
        best: Place
        kind: str | None

    client = openai_of(Script())
    chat = client.chat.completions.parse(model="m", messages=ASK, response_format=Map)
    answered = client.responses.parse(model="m", input="q", text_format=Map)
    said = anthropic_of(Script()).messages.parse(model="m", max_tokens=99, messages=ASK, output_format=Map)

    assert chat.choices[0].message.parsed.best.people == 1
    assert answered.output_parsed == chat.choices[0].message.parsed
    assert said.parsed_output == chat.choices[0].message.parsed


def test_chat_has_logprobs_and_stops() -> None:
    got = openai_of(Script(text="one two STOP")).chat.completions.create(
        model="m", messages=ASK, logprobs=True, stop="STOP"
    )

    assert [t.token for t in got.choices[0].logprobs.content] == ["one ", "two "]


def test_the_tool_is_one_that_is_offered_and_the_one_that_was_named() -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": TOOL, "description": "d"}} for name in ("a", "b")
    ]
    script = Script(tool_names=("Bash", "b"), tool_arguments={"city": "Paris", "unknown": 1})

    def names(**more: object) -> list[str]:
        got = openai_of(script).chat.completions.create(model="m", messages=ASK, tools=tools, **more)
        return [c.function.name for c in got.choices[0].message.tool_calls or ()]

    assert names() == ["b"]
    assert names(tool_choice={"type": "function", "function": {"name": "a"}}) == ["a"]
    assert names(tool_choice="none") == []
    none = openai_of(Script(tool_names=("Bash",))).chat.completions.create(model="m", messages=ASK, tools=tools)
    assert none.choices[0].finish_reason == "stop"


def raw(path: str, script: Script, **body: object) -> bytes:
    with httpx2.Client(transport=transport(script)) as client:
        return client.post(f"http://engine{path}", json=body).content


@pytest.mark.parametrize(
    ("path", "finish", "done"),
    [
        ("/v1/chat/completions", b'"finish_reason":"stop"', b"[DONE]"),
        ("/v1/messages", b'"message_delta"', b'"message_stop"'),
        ("/v1/responses", b'"response.output_item.done"', b'"response.completed"'),
    ],
)
def test_endings_can_be_missing_in_each_dialect(path: str, finish: bytes, done: bytes) -> None:
    asked = {"stream": True, "messages": ASK, "input": "hi", "stream_options": {"include_usage": True}}
    whole = raw(path, Script(), **asked)
    assert finish in whole
    assert done in whole
    without = raw(path, Script(missing=("finish",)), **asked)
    assert finish not in without
    assert done in without
    without = raw(path, Script(missing=("done",)), **asked)
    assert finish in without
    assert done not in without
    assert b'"output_tokens":11' not in raw(path, Script(missing=("usage",)), **asked)
    cut = raw(path, Script(cut_after_tokens=2), **asked)
    assert b"stoker" in cut
    assert done not in cut


@pytest.mark.parametrize("fault", ["no_index", "name_repeated", "name_null", "empty_arguments", "finish_stop"])
def test_the_pieces_of_a_call_can_be_wrong(fault: str) -> None:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}]
    stream = raw("/v1/chat/completions", Script(tool_deltas=(fault,)), stream=True, messages=ASK, tools=tools)  # type: ignore[arg-type]
    frames = [json.loads(line[6:]) for line in stream.decode().split("\n\n") if line and line != "data: [DONE]"]
    pieces = [c for f in frames for c in f["choices"][0]["delta"].get("tool_calls", [])]
    found = {
        "no_index": all("index" not in p for p in pieces),
        "name_repeated": all(p["function"].get("name") == "weather" for p in pieces),
        "name_null": pieces[1]["function"].get("name", "") is None,
        "empty_arguments": not any(p["function"]["arguments"] for p in pieces),
        "finish_stop": frames[-1]["choices"][0]["finish_reason"] == "stop",
    }

    assert found == {name: name == fault for name in found}


@pytest.mark.parametrize("end", ["cut", "finished"])
def test_a_call_can_stop_in_its_middle(end: str) -> None:
    tools = [{"name": "weather", "input_schema": TOOL}]
    stream = raw("/v1/messages", Script(half_call=end), stream=True, messages=ASK, tools=tools)  # type: ignore[arg-type]

    assert b'{\\"city\\"' in stream
    assert b'\\"}' not in stream
    assert (b"message_stop" in stream) == (end == "finished")


def test_errors_are_in_the_shape_of_their_dialect() -> None:
    seen = raw("/v1/messages", Script(error_after_tokens=1, error_code="overloaded_error"), stream=True, messages=ASK)
    assert seen.endswith(
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"scripted error"}}\n\n'
    )
    seen = raw("/v1/responses", Script(error_after_tokens=1), stream=True, input="q")
    last = json.loads(seen.split(b"data: ")[-1])
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")
    refused = json.loads(raw("/v1/messages", Script(status=503), messages=ASK))
    assert refused["type"] == "error"


def test_an_overflow_is_told_in_the_words_of_either_engine() -> None:
    vllm = json.loads(raw("/v1/chat/completions", Script(overflow="vllm"), messages=ASK))["error"]
    llama = json.loads(raw("/v1/chat/completions", Script(overflow="llama.cpp"), messages=ASK))["error"]

    assert (vllm["type"], vllm["param"], vllm["code"]) == ("BadRequestError", "input_tokens", 400)
    assert "maximum context length is 100 tokens" in vllm["message"]
    assert (llama["type"], llama["n_prompt_tokens"], llama["n_ctx"]) == ("exceed_context_size_error", 6, 100)


def test_an_empty_answer_ends_as_if_it_were_none() -> None:
    assert (
        openai_of(Script(empty=True)).chat.completions.create(model="m", messages=ASK).choices[0].message.content
        is None
    )
    assert anthropic_of(Script(empty=True)).messages.create(model="m", max_tokens=9, messages=ASK).content == []
    assert openai_of(Script(empty=True)).responses.create(model="m", input="q").output == []


def test_silence_can_have_comments_in_it() -> None:
    stream = raw("/v1/chat/completions", Script(first_token_seconds=1, comment_seconds=0.25), stream=True, messages=ASK)

    assert stream.count(b":\n\n") == 3


def test_rerank_and_tokenize() -> None:
    ranked = json.loads(raw("/v1/rerank", Script(), query="red fox", documents=["a cat", "the red fox", "fox"]))
    assert [(r["index"], r["relevance_score"]) for r in ranked["results"]] == [(1, 1.0), (2, 0.5), (0, 0.0)]
    assert json.loads(raw("/tokenize", Script(), prompt="a b c"))["count"] == 3
    assert json.loads(raw("/tokenize", Script(), messages=ASK))["count"] == 6
    assert json.loads(raw("/tokenize", Script(), content="a b")) == {"tokens": [0, 1]}


def test_faults_can_come_to_the_first_requests_only() -> None:
    def statuses(script: Script) -> list[int]:
        found = []
        for number in range(1, 6):
            asked = read(b'{"messages":[]}', dialect="chat", number=number)
            assert asked is not None
            head = next(e for e in answer(asked, script, Engine(model="m")) if isinstance(e, Head))
            found.append(head.status)
        return found

    assert statuses(Script(status=503, times=2)) == [503, 503, 200, 200, 200]
    assert statuses(Script(status=503, times=1, every=2)) == [200, 503, 200, 200, 200]
