"""Chat completions, as the openai SDK and opencode use them."""

from typing import Final

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.checks.conformance.asks import CITY, FIX_TOOLS, HELLO, SCHEMA, WEATHER, arguments_problem, fits
from stoker.checks.conformance.events import Stream, counted, stream_of
from stoker.checks.conformance.probe import (
    Finding,
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

PATH: Final = "/v1/chat/completions"
_FINISH: Final = ("stop", "length", "tool_calls", "content_filter", "function_call")
_TOOL: Final[JsonObject] = {
    "type": "function",
    "function": {"name": WEATHER, "description": CITY, "parameters": SCHEMA},
}


def ask(talk: Talk, *messages: JsonObject, **more: Json) -> JsonObject:
    """Write a small body."""
    listed: list[Json] = list(messages) or [{"role": "user", "content": HELLO}]
    return {"model": talk.model, "max_tokens": 16, "messages": listed, **more}


def _whole_problems(value: Json) -> list[str]:
    problems = []
    if at(value, "object") != "chat.completion":
        problems.append(f"object is {at(value, 'object')!r}, not 'chat.completion'")
    if at(value, "choices", 0, "message", "role") != "assistant":
        problems.append("choices[0].message.role is not 'assistant'")
    if at(value, "choices", 0, "finish_reason") not in _FINISH:
        problems.append(f"finish_reason is {at(value, 'choices', 0, 'finish_reason')!r}")
    parts = [count(at(value, "usage", n)) for n in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if min(parts) < 0 or parts[0] + parts[1] != parts[2]:
        problems.append(f"usage does not add up: {at(value, 'usage')}")
    return problems


def _whole(talk: Talk) -> Finding:
    got = talk.post(PATH, ask(talk))
    return judged(_whole_problems(got.value) if got.status == 200 else [got.shown], got.shown)


def _stream_problems(stream: Stream) -> list[str]:
    problems = list(stream.problems)
    chunks = [e.value for e in stream.events]
    choices = [c for chunk in chunks for c in rows(chunk.get("choices"))]
    if any("error" in chunk for chunk in chunks):
        problems.append(f"an error in the stream: {next(c['error'] for c in chunks if 'error' in c)}")
    if not problems and len({words(chunk.get("id")) for chunk in chunks}) != 1:
        problems.append("the chunks do not share one id")
    finishes = [words(c.get("finish_reason")) for c in choices if c.get("finish_reason")]
    if not problems and len(finishes) != 1:
        problems.append(f"{len(finishes)} finish reasons instead of one")
    if not problems and finishes[0] not in _FINISH:
        problems.append(f"finish_reason is '{finishes[0]}'")
    if not problems and not stream.done:
        problems.append("no [DONE] at the end")
    return problems


def _stream(talk: Talk) -> Finding:
    stream = stream_of(talk.post(PATH, ask(talk, stream=True)))
    return judged(_stream_problems(stream), f"{counted(stream)}, [DONE]")


def _reports(stream: Stream) -> list[JsonObject]:
    return [
        e.value for e in stream.events if isinstance(e.value.get("usage"), dict) and not rows(e.value.get("choices"))
    ]


def _usage_asked(talk: Talk) -> Finding:
    stream = stream_of(talk.post(PATH, ask(talk, stream=True, stream_options={"include_usage": True})))
    found = _reports(stream)
    problems = _stream_problems(stream) or ([] if len(found) == 1 else [f"{len(found)} usage chunks instead of one"])
    return judged(problems, f"usage {at(found[0], 'usage')}" if found else "")


def _usage_not_asked(talk: Talk) -> Finding:
    stream = stream_of(talk.post(PATH, ask(talk, stream=True)))
    problems = list(stream.problems) or (["a usage chunk that nobody asked for"] if _reports(stream) else [])
    return judged(problems, "none")


def _taken(body: JsonObject, talk: Talk) -> Finding:
    got = talk.post(PATH, body)
    return passed("200") if got.status == 200 else failed(got.shown)


def _unknown(talk: Talk) -> Finding:
    more: JsonObject = {
        "store": False,
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "stoker_unknown_member": {"x": 1},
    }
    return _taken(ask(talk, **more), talk)


def _nulls(talk: Talk) -> Finding:
    names = ("tools", "tool_choice", "stop", "temperature", "top_p", "response_format", "stream_options")
    return _taken(ask(talk, **dict.fromkeys(names)), talk)


def _middle(talk: Talk) -> Finding:
    return _taken(
        ask(
            talk,
            {"role": "user", "content": HELLO},
            {"role": "assistant", "content": "Hello!"},
            {"role": "system", "content": "Answer in one word."},
            {"role": "user", "content": "Go on."},
        ),
        talk,
    )


def _developer(talk: Talk) -> Finding:
    return _taken(ask(talk, {"role": "developer", "content": "Be brief."}, {"role": "user", "content": HELLO}), talk)


def _parts(talk: Talk) -> Finding:
    parts: list[Json] = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    return _taken(ask(talk, {"role": "user", "content": parts}), talk)


def _limit(talk: Talk) -> Finding:
    body: JsonObject = {**ask(talk), "max_completion_tokens": 1}
    body.pop("max_tokens")
    got = talk.post(PATH, body)
    finish, used = at(got.value, "choices", 0, "finish_reason"), count(at(got.value, "usage", "completion_tokens"))
    if got.status == 200 and finish == "stop" and used <= 1:
        return skipped("the answer has one token anyway")
    return judged(
        [] if got.status == 200 and finish == "length" else [f"finish_reason {finish!r}: {got.shown}"], "length"
    )


def _structured(talk: Talk) -> Finding:
    form: JsonObject = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
    got = talk.post(PATH, ask(talk, {"role": "user", "content": CITY}, response_format=form, max_tokens=128))
    text = words(at(got.value, "choices", 0, "message", "content"))
    if got.status != 200:
        return failed(got.shown)
    if fits(text):
        return passed(" ".join(text[:80].split()))
    if at(got.value, "choices", 0, "finish_reason") == "length":
        return skipped("the answer reached its limit before its structure was whole")
    return failed(f"the answer does not fit the schema: {text[:120]!r}")


def called(stream: Stream) -> tuple[list[str], JsonObject]:
    """Put the calls of a stream together: what is wrong with its pieces, and the assistant's turn."""
    problems, calls = list(stream.problems), dict[int, dict[str, str]]()
    for event in stream.events:
        for choice in rows(event.value.get("choices")):
            for piece in rows(at(choice, "delta", "tool_calls")):
                problems += _piece(piece, calls)
    turn: list[Json] = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls.values()
    ]
    finish = [words(c.get("finish_reason")) for e in stream.events for c in rows(e.value.get("choices"))]
    if calls and "tool_calls" not in finish and "length" not in finish:
        problems.append("finish_reason is not tool_calls although there is a call")
    problems += [wrong for c in calls.values() if (wrong := arguments_problem(c["arguments"]))]
    return problems, {"role": "assistant", "content": None, "tool_calls": turn}


def _piece(piece: JsonObject, calls: dict[int, dict[str, str]]) -> list[str]:
    index = count(piece.get("index"))
    if index < 0:
        return ["a piece of a tool call has no index"]
    name, problems = words(at(piece, "function", "name")), []
    call = calls.get(index)
    if call is None:
        call = calls[index] = {"id": words(piece.get("id")), "name": name, "arguments": ""}
        problems = [] if call["id"] and name else ["the first piece of a call lacks its id or name"]
    elif name:
        problems = ["the name of a call comes twice"]
    call["arguments"] += words(at(piece, "function", "arguments"))
    return problems


def _tools(talk: Talk) -> Finding:
    question: JsonObject = {"role": "user", "content": CITY}
    tools: list[Json] = [_TOOL]
    body = ask(talk, question, tools=tools, tool_choice="auto", stream=True, max_tokens=256)
    problems, turn = called(stream_of(talk.post(PATH, body)))
    calls = rows(turn["tool_calls"])
    if problems:
        return failed(problems[0], FIX_TOOLS)
    if not calls:
        return skipped("the model made no call")
    results: list[JsonObject] = [
        {"role": "tool", "tool_call_id": words(c.get("id")), "content": "14 degrees"} for c in calls
    ]
    got = talk.post(PATH, ask(talk, question, turn, *results, tools=tools, max_tokens=64))
    return judged(
        _whole_problems(got.value) if got.status == 200 else [got.shown], f"{len(calls)} call(s), then an answer"
    )


def _bad_json(talk: Talk) -> Finding:
    got = talk.post(PATH, b'{"model": ')
    return judged(error_problems(got.status, got.value, 400), got.shown)


def error_problems(status: int, value: Json, *wanted: int) -> list[str]:
    """Complain about an error that an OpenAI client could not read."""
    problems = [] if status in wanted else [f"status {status}, not {' or '.join(map(str, wanted))}"]
    if not isinstance(at(value, "error", "message"), str):
        problems.append(f"no error.message in {msgspec.json.encode(value)[:120].decode()}")
    return problems


def _no_model(talk: Talk) -> Finding:
    got = talk.post(PATH, {**ask(talk), "model": "stoker-no-such-model"})
    if got.status == 200:
        return skipped("it answers for any model name")
    return judged(error_problems(got.status, got.value, 404), got.shown)


PROBES: Final = (
    Probe(name="chat.whole", what="an answer in one piece", run=_whole),
    Probe(name="chat.stream", what="a stream with one finish reason and [DONE]", run=_stream),
    Probe(name="chat.usage-asked", what="one usage chunk when it is asked for", run=_usage_asked),
    Probe(name="chat.usage-not-asked", what="no usage chunk when it is not", run=_usage_not_asked),
    Probe(name="chat.unknown-members", what="members that it does not know are no error", run=_unknown),
    Probe(name="chat.null-members", what="null is as good as absent", run=_nulls),
    Probe(name="chat.system-in-the-middle", what="a system message behind others", run=_middle),
    Probe(name="chat.developer", what="the role developer", run=_developer),
    Probe(name="chat.parts", what="content as a list of parts", run=_parts),
    Probe(name="chat.limit", what="max_completion_tokens ends with length", run=_limit),
    Probe(name="chat.structured", what="a JSON schema is kept", run=_structured),
    Probe(name="chat.tools", what="a tool turn, streamed, and its result", run=_tools),
    Probe(name="chat.bad-json", what="a broken body is a readable 400", run=_bad_json),
    Probe(name="chat.no-model", what="an unknown model is a readable 404", run=_no_model),
)
