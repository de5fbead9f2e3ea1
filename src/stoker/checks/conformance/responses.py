"""Responses, as the openai SDK and Codex use them."""

from typing import Final

from stoker.base.json import Json, JsonObject
from stoker.checks.conformance.asks import CITY, FIX_TOOLS, HELLO, SCHEMA, WEATHER, arguments_problem, fits
from stoker.checks.conformance.chat import error_problems
from stoker.checks.conformance.events import Stream, counted, named, stream_of
from stoker.checks.conformance.probe import (
    Finding,
    Got,
    Probe,
    Talk,
    at,
    count,
    failed,
    judged,
    passed,
    rows,
    skipped,
    words,
)

PATH: Final = "/v1/responses"
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_TOOL: Final[JsonObject] = {
    "type": "function",
    "name": WEATHER,
    "description": CITY,
    "parameters": SCHEMA,
    "strict": False,
}


def ask(talk: Talk, given: Json = HELLO, **more: Json) -> JsonObject:
    """Write a small body."""
    return {"model": talk.model, "max_output_tokens": 16, "input": given, **more}


def text_of(response: Json) -> str:
    """Put the text of a response together."""
    parts = [part for item in rows(at(response, "output")) for part in rows(item.get("content"))]
    return "".join(words(part.get("text")) for part in parts if part.get("type") == "output_text")


def _response_problems(value: Json) -> list[str]:
    problems = []
    if at(value, "object") != "response":
        problems.append(f"object is {at(value, 'object')!r}, not 'response'")
    if at(value, "status") not in ("completed", "incomplete"):
        problems.append(f"status is {at(value, 'status')!r}: {at(value, 'error')}")
    parts = [count(at(value, "usage", n)) for n in ("input_tokens", "output_tokens", "total_tokens")]
    if min(parts) < 0 or parts[0] + parts[1] != parts[2]:
        problems.append(f"usage does not add up: {at(value, 'usage')}")
    return problems


def _whole_problems(got: Got) -> list[str]:
    return _response_problems(got.value) if got.status == 200 else [got.shown]


def _whole(talk: Talk) -> Finding:
    got = talk.post(PATH, ask(talk))
    return judged(_whole_problems(got), got.shown)


def stream_problems(stream: Stream) -> list[str]:
    """Complain about a stream that Codex or the SDK would not take."""
    problems = [*stream.problems, *named(stream)]
    kinds = [e.name for e in stream.events]
    if "error" in kinds:
        problems.append(f"an error in the stream: {stream.events[-1].value}")
    if not problems and kinds[:1] != ["response.created"]:
        problems.append(f"it begins with {kinds[:1]}")
    ends = [kind for kind in kinds if kind in _ENDS]
    if not problems and (len(ends) != 1 or kinds[-1] != ends[0]):
        problems.append(f"it ends with {kinds[-1:]}, terminal events: {ends}")
    numbers = [count(e.value.get("sequence_number")) for e in stream.events]
    if not problems and (min(numbers, default=-1) < 0 or sorted(set(numbers)) != numbers):
        problems.append("sequence_number does not grow from event to event")
    begun, ended = kinds.count("response.output_item.added"), kinds.count("response.output_item.done")
    if not problems and begun != ended:
        problems.append(f"{begun} items begin, {ended} end")
    return problems or _response_problems(stream.events[-1].value.get("response"))


def _stream(talk: Talk) -> Finding:
    stream = stream_of(talk.post(PATH, ask(talk, stream=True)))
    problems = stream_problems(stream)
    deltas = "".join(words(e.value.get("delta")) for e in stream.events if e.name == "response.output_text.delta")
    whole = text_of(stream.events[-1].value.get("response")) if stream.events else ""
    if not problems and deltas != whole:
        problems.append(f"the pieces make {deltas[:60]!r}, the whole response has {whole[:60]!r}")
    return judged(problems, counted(stream))


def _taken(body: JsonObject, talk: Talk) -> Finding:
    got = talk.post(PATH, body)
    return passed("200") if got.status == 200 else failed(got.shown)


def _unknown(talk: Talk) -> Finding:
    more: JsonObject = {"store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k"}
    return _taken(ask(talk, **more, client_metadata={"a": "b"}, stoker_unknown_member=1), talk)


def _nulls(talk: Talk) -> Finding:
    return _taken(ask(talk, **dict.fromkeys(("tools", "instructions", "temperature", "text", "reasoning"))), talk)


def _developer(talk: Talk) -> Finding:
    given: list[Json] = [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        for role, text in (("developer", "Be brief."), ("user", HELLO))
    ]
    return _taken(ask(talk, given), talk)


def _foreign_tools(talk: Talk) -> Finding:
    space: JsonObject = {"type": "namespace", "name": "agents", "description": "d", "tools": [_TOOL]}
    return _taken(ask(talk, tools=[_TOOL, space, {"type": "web_search", "external_web_access": False}]), talk)


def _limit(talk: Talk) -> Finding:
    got = talk.post(PATH, {**ask(talk), "max_output_tokens": 1})
    status, reason = at(got.value, "status"), at(got.value, "incomplete_details", "reason")
    if status == "completed" and count(at(got.value, "usage", "output_tokens")) <= 1:
        return skipped("the answer has one token anyway")
    right = (status, reason) == ("incomplete", "max_output_tokens")
    return judged([] if right else [f"status {status!r}, reason {reason!r}: {got.shown}"], "incomplete")


def called(stream: Stream) -> tuple[list[str], list[JsonObject]]:
    """Take the calls out of a stream: what is wrong with it, and the items."""
    problems = stream_problems(stream)
    items = rows(at(stream.events[-1].value, "response", "output")) if stream.events else []
    calls = [item for item in items if item.get("type") == "function_call"]
    for call in calls:
        if not words(call.get("call_id")) or not words(call.get("name")):
            problems.append("a call lacks its call_id or name")
        if wrong := arguments_problem(words(call.get("arguments"))):
            problems.append(wrong)
    return problems, calls


def _tools(talk: Talk) -> Finding:
    tools: list[Json] = [_TOOL]
    body = ask(talk, CITY, tools=tools, stream=True, max_output_tokens=256)
    problems, calls = called(stream_of(talk.post(PATH, body)))
    if problems:
        return failed(problems[0], FIX_TOOLS)
    if not calls:
        return skipped("the model made no call")
    results: list[Json] = [
        {"type": "function_call_output", "call_id": words(c.get("call_id")), "output": "14 degrees"} for c in calls
    ]
    question: JsonObject = {"type": "message", "role": "user", "content": CITY}
    got = talk.post(PATH, ask(talk, [question, *calls, *results], tools=tools, max_output_tokens=64))
    return judged(_whole_problems(got), f"{len(calls)} call(s), then an answer")


def _structured(talk: Talk) -> Finding:
    form: JsonObject = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
    got = talk.post(PATH, ask(talk, CITY, text=form, max_output_tokens=128))
    text = text_of(got.value)
    if got.status != 200:
        return failed(got.shown)
    if fits(text):
        return passed(" ".join(text[:80].split()))
    if at(got.value, "status") == "incomplete":
        return skipped("the answer reached its limit before its structure was whole")
    return failed(f"the answer does not fit the schema: {text[:120]!r}")


def _bad_json(talk: Talk) -> Finding:
    got = talk.post(PATH, b'{"model": ')
    return judged(error_problems(got.status, got.value, 400), got.shown)


def _no_model(talk: Talk) -> Finding:
    got = talk.post(PATH, {**ask(talk), "model": "stoker-no-such-model"})
    if got.status == 200:
        return skipped("it answers for any model name")
    return judged(error_problems(got.status, got.value, 404), got.shown)


PROBES: Final = (
    Probe(name="responses.whole", what="a response in one piece", run=_whole),
    Probe(name="responses.stream", what="numbered events, one terminal event with the whole response", run=_stream),
    Probe(name="responses.unknown-members", what="store, include, metadata, unknown members", run=_unknown),
    Probe(name="responses.null-members", what="null is as good as absent", run=_nulls),
    Probe(name="responses.developer", what="the role developer, input as items", run=_developer),
    Probe(name="responses.foreign-tools", what="tools that no engine can call are no error", run=_foreign_tools),
    Probe(name="responses.limit", what="max_output_tokens leaves it incomplete", run=_limit),
    Probe(name="responses.tools", what="a tool turn, streamed, and its result", run=_tools),
    Probe(name="responses.structured", what="a JSON schema is kept", run=_structured),
    Probe(name="responses.bad-json", what="a broken body is a readable 400", run=_bad_json),
    Probe(name="responses.no-model", what="an unknown model is a readable 404", run=_no_model),
)
