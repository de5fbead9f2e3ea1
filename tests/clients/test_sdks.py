"""The vendors' SDKs through the gateway: helpers and raw iterators, on an engine that speaks chat alone, and on one
that speaks their dialect. What breaks off is raised, never an answer."""

import json
from collections.abc import Iterator

import anthropic
import openai
import pydantic
import pytest
from tests.clients.gateway import CHAT, EVERY, KEY, Gateway, gateway
from tests.clients.scripted import FINAL, Scripted

ASK = [{"role": "user", "content": "What is the weather in Oslo?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WORDS = {"tool_names": [], "tool_arguments": {"city": "Oslo"}, "reasoning": "let me see"}


class Place(pydantic.BaseModel):
    city: str
    people: int


@pytest.fixture(scope="module", params=[CHAT, EVERY], ids=["translated", "passed-through"])
def door(
    request: pytest.FixtureRequest, running: Scripted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), running, dialects=request.param) as made:
        yield made


@pytest.fixture
def chatty(door: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{door.origin}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(door: Gateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=door.origin, api_key=KEY, max_retries=0) as client:
        yield client


# Text, usage and a tool turn, each by the helper and by the raw iterator.


def test_chat(chatty: openai.OpenAI, engine: Scripted) -> None:
    whole = chatty.chat.completions.create(model="fire", messages=ASK)
    chunks = list(chatty.chat.completions.create(model="fire", messages=ASK, stream=True))
    options = {"include_usage": True}
    counted = list(chatty.chat.completions.create(model="fire", messages=ASK, stream=True, stream_options=options))

    assert whole.choices[0].message.content == FINAL
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == FINAL
    assert not any(c.usage for c in chunks)
    assert counted[-1].usage is not None
    assert whole.usage is not None
    assert counted[-1].usage.completion_tokens == whole.usage.completion_tokens == 4


def test_responses(chatty: openai.OpenAI, engine: Scripted) -> None:
    whole = chatty.responses.create(model="fire", input="q")
    with chatty.responses.stream(model="fire", input="q") as stream:
        helped = stream.get_final_response()
    events = list(chatty.responses.create(model="fire", input="q", stream=True))

    assert whole.output_text == helped.output_text == FINAL
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert whole.usage is not None
    assert helped.usage is not None
    assert whole.usage.output_tokens == helped.usage.output_tokens == 4


def test_messages(claude: anthropic.Anthropic, engine: Scripted) -> None:
    asked = {"model": "fire", "max_tokens": 64, "messages": ASK}
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        helped = stream.get_final_message()
    events = [event.type for event in claude.messages.create(**asked, stream=True)]

    assert whole.content[0].text == text == helped.content[0].text == FINAL
    assert whole.stop_reason == helped.stop_reason == "end_turn"
    assert whole.usage.output_tokens == helped.usage.output_tokens == 4
    assert whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0) == 6
    assert (events[0], events[-2:]) == ("message_start", ["message_delta", "message_stop"])


def test_a_tool_turn_in_chat(chatty: openai.OpenAI, engine: Scripted) -> None:
    engine.play(**WORDS, calls=2)
    tools = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}]
    with chatty.chat.completions.stream(model="fire", messages=ASK, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    calls = message.tool_calls or []
    assert [json.loads(c.function.arguments) for c in calls] == [{"city": "Oslo"}] * 2
    results = [{"role": "tool", "tool_call_id": c.id, "content": "sun"} for c in calls]
    turn = {"role": "assistant", "tool_calls": [c.model_dump(exclude={"parsed_arguments"}) for c in calls]}
    final = chatty.chat.completions.create(model="fire", messages=[*ASK, turn, *results], tools=tools)

    assert final.choices[0].message.content == FINAL


def test_a_tool_turn_in_responses(chatty: openai.OpenAI, engine: Scripted) -> None:
    engine.play(**WORDS, calls=2)
    tools = [{"type": "function", "name": "weather", "description": "d", "parameters": SCHEMA, "strict": False}]
    with chatty.responses.stream(model="fire", input=ASK, tools=tools) as stream:
        first = stream.get_final_response()
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(c.arguments) for c in calls] == [{"city": "Oslo"}] * 2
    results = [{"type": "function_call_output", "call_id": c.call_id, "output": "sun"} for c in calls]
    said = [c.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for c in calls]
    final = chatty.responses.create(model="fire", input=[*ASK, *said, *results], tools=tools)

    assert final.output_text == FINAL


def test_a_tool_turn_in_messages(claude: anthropic.Anthropic, engine: Scripted) -> None:
    engine.play(**WORDS, calls=2)
    tools = [{"name": "weather", "description": "d", "input_schema": SCHEMA}]
    asked = {"model": "fire", "max_tokens": 64, "tools": tools}
    with claude.messages.stream(**asked, messages=ASK) as stream:
        first = stream.get_final_message()
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [c.input for c in calls] == [{"city": "Oslo"}] * 2
    assert first.stop_reason == "tool_use"
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "sun"} for c in calls]
    turns = [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    final = claude.messages.create(**asked, messages=[*ASK, *turns])

    assert final.content[-1].text == FINAL


def test_structured_output(chatty: openai.OpenAI, claude: anthropic.Anthropic, engine: Scripted) -> None:
    chat = chatty.chat.completions.parse(model="fire", messages=ASK, response_format=Place)
    answered = chatty.responses.parse(model="fire", input=ASK, text_format=Place)
    said = claude.messages.parse(model="fire", max_tokens=64, messages=ASK, output_format=Place)

    assert chat.choices[0].message.parsed == Place(city="city", people=1)
    assert answered.output_parsed == said.parsed_output == Place(city="city", people=1)


# What is not there, not allowed or too long has its class; what is cut is raised.


def test_models_in_both_shapes(chatty: openai.OpenAI, claude: anthropic.Anthropic, engine: Scripted) -> None:
    assert "fire" in [model.id for model in chatty.models.list()]
    assert "fire" in [model.id for model in claude.models.list()]
    assert chatty.models.retrieve("fire").id == "fire"


def test_a_prompt_is_counted(claude: anthropic.Anthropic, engine: Scripted) -> None:
    assert claude.messages.count_tokens(model="fire", messages=ASK).input_tokens > 0


def test_errors_have_their_classes(chatty: openai.OpenAI, claude: anthropic.Anthropic, engine: Scripted) -> None:
    with pytest.raises(openai.NotFoundError):
        chatty.chat.completions.create(model="fir", messages=ASK)
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="fir", max_tokens=9, messages=ASK)
    with pytest.raises(openai.AuthenticationError):
        chatty.with_options(api_key="no").responses.create(model="fire", input="q")
    nobody = claude.with_options(api_key="no")
    with pytest.raises(anthropic.AuthenticationError):
        nobody.messages.create(model="fire", max_tokens=9, messages=ASK)


@pytest.mark.parametrize(
    "fault",
    [
        {"cut_after_tokens": 2},
        {"cut_after_tokens": 2, "cut": "reset"},
        {"error_after_tokens": 2},
        {"missing": ["finish"]},
    ],
    ids=lambda fault: " ".join(f"{name}={value}" for name, value in fault.items()),
)
def test_what_breaks_off_is_raised(
    chatty: openai.OpenAI, claude: anthropic.Anthropic, engine: Scripted, fault: dict[str, object]
) -> None:
    engine.play(**fault)
    with pytest.raises(openai.APIError):
        list(chatty.chat.completions.create(model="fire", messages=ASK, stream=True))
    # The SDK hands response.failed on as an event; what it refuses to give is a final response.
    with chatty.responses.stream(model="fire", input="q") as stream, pytest.raises((openai.APIError, RuntimeError)):
        stream.get_final_response()
    with claude.messages.stream(model="fire", max_tokens=64, messages=ASK) as said, pytest.raises(anthropic.APIError):
        said.get_final_message()


@pytest.mark.parametrize(("status", "error"), [(400, openai.BadRequestError), (429, openai.RateLimitError)])
def test_an_early_status_of_the_engine_reaches_the_client(
    chatty: openai.OpenAI,
    claude: anthropic.Anthropic,
    engine: Scripted,
    status: int,
    error: type[openai.APIStatusError],
) -> None:
    engine.play(status=status)
    with pytest.raises(error):
        list(chatty.chat.completions.create(model="fire", messages=ASK, stream=True))
    with pytest.raises(getattr(anthropic, error.__name__)):
        list(claude.messages.create(model="fire", max_tokens=9, messages=ASK, stream=True))
