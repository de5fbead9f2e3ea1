"""What the real SDKs make of the bytes that we write, by their helpers and by their raw iterators."""

from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest
from openai.types.chat import ChatCompletionMessage
from tests.wire.pair import AGENT, DIALECTS, begin, chat_events, delta, fed, recorded

from stoker.facts.ending import Outcome

TEXT = "I shall \u201clook\u201d \U0001f50e now.\n"
THOUGHT = "First think."
CALLS = [("call_a", "look", {"where": "h\u00e4re"}), ("call_b", "wait", {"s": 1})]
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def upstream(dialect: str) -> bytes:
    """The same answer as an engine of each dialect would send it."""
    return AGENT if dialect == "chat" else fed(begin(dialect, "chat"), AGENT)


def transport(body: bytes, kind: str) -> httpx2.Client:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": kind})

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def open_ai(body: bytes, kind: str = "text/event-stream") -> openai.OpenAI:
    client = transport(body, kind)
    return openai.OpenAI(api_key="k", base_url="http://engine.invalid/v1", http_client=client, max_retries=0)


def claude(body: bytes, kind: str = "text/event-stream") -> anthropic.Anthropic:
    client = transport(body, kind)
    return anthropic.Anthropic(api_key="k", base_url="http://engine.invalid", http_client=client, max_retries=0)


@pytest.mark.parametrize("engine", DIALECTS)
def test_anthropic_reads_a_stream(engine: str) -> None:
    wire = fed(begin("messages", engine), upstream(engine), size=7)
    with claude(wire).messages.stream(max_tokens=9, **ASK) as stream:
        message = stream.get_final_message()

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    thought, text, *calls = message.content
    assert (thought.type, text.type) == ("thinking", "text")
    assert (thought.thinking, text.text) == (THOUGHT, TEXT)
    assert thought.signature
    assert [(call.id, call.name, call.input) for call in calls if call.type == "tool_use"] == CALLS
    assert message.stop_reason == "tool_use"
    seen = message.usage
    assert (seen.input_tokens, seen.cache_read_input_tokens, seen.output_tokens) == (36, 64, 30)


@pytest.mark.parametrize("engine", DIALECTS)
def test_anthropic_reads_a_whole_answer(engine: str) -> None:
    follow = begin("messages", engine, stream=False)
    assert fed(follow, upstream(engine), size=7) == b""
    message = claude(follow.body(), "application/json").messages.create(max_tokens=9, **ASK)

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"] == CALLS
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("tool_use", 36, 30)


def calls_of(message: ChatCompletionMessage) -> list[tuple[str, str, object]]:
    calls = [call for call in message.tool_calls or () if call.type == "function"]
    return [(call.id, call.function.name, msgspec.json.decode(call.function.arguments)) for call in calls]


@pytest.mark.parametrize("engine", DIALECTS)
def test_openai_reads_chat(engine: str) -> None:
    with open_ai(fed(begin("chat", engine), upstream(engine), size=7)).chat.completions.stream(**ASK) as stream:
        completion = stream.get_final_completion()
    choice = completion.choices[0]

    assert (choice.message.content, choice.finish_reason) == (TEXT, "tool_calls")
    assert calls_of(choice.message) == CALLS
    assert choice.message.model_extra is not None
    assert choice.message.model_extra["reasoning_content"] == THOUGHT
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (100, 30)

    follow = begin("chat", engine, stream=False)
    fed(follow, upstream(engine))
    whole = open_ai(follow.body(), "application/json").chat.completions.create(**ASK)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (TEXT, "tool_calls")
    assert calls_of(whole.choices[0].message) == CALLS


@pytest.mark.parametrize("engine", DIALECTS)
def test_openai_reads_responses(engine: str) -> None:
    wire = fed(begin("responses", engine), upstream(engine), size=7)
    with open_ai(wire).responses.stream(model="m", input="hi") as stream:
        numbers = [event.sequence_number for event in stream]
        reply = stream.get_final_response()

    assert numbers == list(range(len(numbers)))
    assert (reply.status, reply.output_text) == ("completed", TEXT)
    assert [item.type for item in reply.output] == ["reasoning", "message", "function_call", "function_call"]
    found = [(i.call_id, i.name, msgspec.json.decode(i.arguments)) for i in reply.output if i.type == "function_call"]
    assert found == CALLS
    thoughts = [part.text for item in reply.output if item.type == "reasoning" for part in item.content or ()]
    assert thoughts == [THOUGHT]
    assert reply.usage is not None
    assert reply.usage.input_tokens_details.cached_tokens == 64

    follow = begin("responses", engine, stream=False)
    fed(follow, upstream(engine))
    whole = open_ai(follow.body(), "application/json").responses.create(model="m", input="hi")
    assert (whole.output_text, whole.status, whole.usage) == (TEXT, "completed", reply.usage)


@pytest.mark.parametrize("engine", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
def test_every_sdk_raises_on_a_cut_answer(client: str, engine: str) -> None:
    follow = begin(client, engine)
    data = upstream(engine)
    wire = follow.feed(data[: len(data) * 2 // 3], 1.0) + follow.flush(2.0)
    assert follow.ending(cut="").outcome is Outcome.TRUNCATED
    wire += follow.failure("The engine's answer broke off.", kind="upstream_error", code="upstream_truncated")

    if client == "messages":
        with (
            pytest.raises(anthropic.APIStatusError, match="broke off"),
            claude(wire).messages.stream(max_tokens=9, **ASK) as stream,
        ):
            stream.get_final_message()
        with pytest.raises(anthropic.APIStatusError, match="broke off"):
            list(claude(wire).messages.create(max_tokens=9, stream=True, **ASK))
    elif client == "chat":
        with pytest.raises(openai.APIError, match="broke off"):
            list(open_ai(wire).chat.completions.create(stream=True, **ASK))
    else:
        with pytest.raises(openai.APIError, match="broke off"):
            list(open_ai(wire).responses.create(model="m", input="hi", stream=True))
        with (
            pytest.raises(openai.APIError, match="broke off"),
            open_ai(wire).responses.stream(model="m", input="hi") as replies,
        ):
            replies.get_final_response()


@pytest.mark.parametrize("engine", ["chat", "responses"])
def test_signs_of_life_do_not_disturb_a_responses_client(engine: str) -> None:
    follow = begin("responses", engine)
    wire = follow.keep_alive() + follow.keep_alive()
    events = upstream(engine).replace(b"resp_w-1", b"resp_of_the_engine")
    at = events.index(b"\n\n", len(events) // 2) + 2
    wire += follow.feed(events[:at], 1.0) + follow.keep_alive() + follow.feed(events[at:], 2.0)

    with open_ai(wire).responses.stream(model="m", input="hi") as stream:
        seen = list(stream)
        reply = stream.get_final_response()
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert [event.type for event in seen[:2]] == ["response.created", "response.in_progress"]
    assert sum(event.type == "response.created" for event in seen) == 1
    assert (reply.output_text, reply.id) == (TEXT, "resp_w-1")


def test_pings_before_the_message_are_taken() -> None:
    follow = begin("messages", "chat")
    wire = follow.keep_alive() + fed(follow, AGENT)
    with claude(wire).messages.stream(max_tokens=9, **ASK) as stream:
        assert stream.get_final_message().stop_reason == "tool_use"


@pytest.mark.parametrize("name", ["llamacpp_b11549_anthropic_stream.txt", "vllm_0.32_anthropic_stream.txt"])
def test_recorded_messages_pass_identical_and_are_counted(name: str) -> None:
    data = recorded(name)
    follow = begin("messages", "messages")
    assert fed(follow, data, size=13).rstrip() == data.rstrip()

    tokens = follow.tokens()
    assert (follow.ending(cut="").outcome, tokens.output, tokens.estimated) == (Outcome.LENGTH, 12, False)
    assert (tokens.prompt, tokens.cached) == ((34, 33) if name.startswith("llama") else (18, 0))


def test_a_refusal_and_its_reason_arrive() -> None:
    data = chat_events(delta(refusal="I will not."), delta("content_filter"))
    with claude(fed(begin("messages", "chat"), data)).messages.stream(max_tokens=9, **ASK) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "refusal"
    follow = begin("responses", "chat", stream=False)
    fed(follow, data)
    reply = open_ai(follow.body(), "application/json").responses.create(model="m", input="hi")
    assert reply.incomplete_details is not None
    assert reply.incomplete_details.reason == "content_filter"
    assert follow.ending(cut="").outcome is Outcome.REFUSAL
