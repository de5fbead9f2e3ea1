"""Messages, as the anthropic SDK and Claude Code use them."""

from collections.abc import Sequence
from typing import Final

from stoker.base.json import Json, JsonObject
from stoker.checks.conformance.asks import CITY, FIX_TOOLS, HELLO, SCHEMA, WEATHER, arguments_problem, fits
from stoker.checks.conformance.events import Event, Stream, counted, named, stream_of
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

PATH: Final = "/v1/messages"
VERSION: Final = {"anthropic-version": "2023-06-01"}
_BETAS: Final = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,made-up-2031-01-01"
_REASONS: Final = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal")
_TOOL: Final[JsonObject] = {"name": WEATHER, "description": CITY, "input_schema": SCHEMA}


def ask(talk: Talk, *messages: JsonObject, **more: Json) -> JsonObject:
    """Write a small body."""
    listed: list[Json] = list(messages) or [{"role": "user", "content": HELLO}]
    return {"model": talk.model, "max_tokens": 16, "messages": listed, **more}


def _whole_problems(got: Got) -> list[str]:
    value, problems = got.value, []
    if got.status != 200:
        return [got.shown]
    if (at(value, "type"), at(value, "role")) != ("message", "assistant"):
        problems.append("no message of the assistant")
    if at(value, "stop_reason") not in _REASONS:
        problems.append(f"stop_reason is {at(value, 'stop_reason')!r}")
    if not isinstance(at(value, "content"), list):
        problems.append("content is no list of blocks")
    if min(count(at(value, "usage", n)) for n in ("input_tokens", "output_tokens")) < 0:
        problems.append(f"usage is {at(value, 'usage')}")
    return problems


def _whole(talk: Talk) -> Finding:
    got = talk.post(PATH, ask(talk), headers=VERSION)
    return judged(_whole_problems(got), got.shown)


def stream_problems(stream: Stream) -> list[str]:
    """Complain about a stream that the clients' accumulators would not take."""
    problems = [*stream.problems, *named(stream)]
    kinds = [e.name for e in stream.events if e.name != "ping"]
    if "error" in kinds:
        problems.append(f"an error in the stream: {stream.events[-1].value.get('error')}")
    if not problems and (not kinds or kinds[0] != "message_start" or kinds[-1] != "message_stop"):
        problems.append(f"it runs from {kinds[:1]} to {kinds[-1:]}")
    if not problems and kinds.count("message_delta") != 1:
        problems.append(f"{kinds.count('message_delta')} message_delta instead of one")
    return problems or _block_problems([e for e in stream.events if e.name.startswith("content_block")])


def _block_problems(events: Sequence[Event]) -> list[str]:
    """Blocks are numbered from 0, opened once, filled while they are open, and closed."""
    opened, seen = -1, -1
    for event in events:
        index = count(event.value.get("index"))
        if event.name == "content_block_start":
            if index != seen + 1 or opened >= 0:
                return [f"block {index} opens behind block {seen}" + (", which is open" if opened >= 0 else "")]
            opened = seen = index
        elif index != opened:
            return [f"{event.name} is of block {index} while {opened} is open"]
        elif event.name == "content_block_stop":
            opened = -1
    return ["the last block is never closed"] if opened >= 0 else []


def _stream(talk: Talk) -> Finding:
    stream = stream_of(talk.post(PATH, ask(talk, stream=True), headers=VERSION))
    problems = stream_problems(stream)
    last = next((e.value for e in stream.events if e.name == "message_delta"), {})
    if not problems and at(last, "delta", "stop_reason") not in _REASONS:
        problems.append(f"stop_reason is {at(last, 'delta', 'stop_reason')!r}")
    if not problems and count(at(last, "usage", "output_tokens")) < 0:
        problems.append("message_delta has no usage.output_tokens")
    return judged(problems, f"{counted(stream)}, {at(last, 'delta', 'stop_reason')}, usage {at(last, 'usage')}")


def _taken(body: JsonObject, talk: Talk, *, path: str = PATH, **headers: str) -> Finding:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    got = talk.post(path, body, headers={**VERSION, **given})
    return passed("200") if got.status == 200 else failed(got.shown)


def _betas(talk: Talk) -> Finding:
    return _taken(ask(talk), talk, path=f"{PATH}?beta=true", anthropic_beta=_BETAS)


def _unknown(talk: Talk) -> Finding:
    edits: list[Json] = [{"type": "clear_thinking_20251015", "keep": "all"}]
    more: JsonObject = {"context_management": {"edits": edits}, "output_config": {"effort": "high"}}
    return _taken(ask(talk, thinking={"type": "adaptive"}, **more, stoker_unknown_member=1), talk)


def _middle(talk: Talk) -> Finding:
    system: list[Json] = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    messages: tuple[JsonObject, ...] = ({"role": "user", "content": HELLO}, {"role": "system", "content": "One word."})
    return _taken(ask(talk, *messages, system=system), talk)


def _either_header(talk: Talk) -> Finding:
    if not talk.key:
        return skipped("no key was given")
    for header in ({"x-api-key": talk.key}, {"authorization": f"Bearer {talk.key}"}):
        got = talk.post(PATH, ask(talk), headers={**VERSION, **header})
        if got.status != 200:
            return failed(f"{next(iter(header))}: {got.shown}")
    return passed("x-api-key and authorization")


def _limit(talk: Talk) -> Finding:
    got = talk.post(PATH, {**ask(talk), "max_tokens": 1}, headers=VERSION)
    reason = at(got.value, "stop_reason")
    if reason == "end_turn" and count(at(got.value, "usage", "output_tokens")) <= 1:
        return skipped("the answer has one token anyway")
    return judged([] if reason == "max_tokens" else [f"stop_reason {reason!r}: {got.shown}"], "max_tokens")


def _large_limit(talk: Talk) -> Finding:
    return _taken({**ask(talk), "max_tokens": 128_000, "stop_sequences": ["\n"]}, talk)


def called(stream: Stream) -> tuple[list[str], list[Json]]:
    """Put the blocks of a stream together: what is wrong with it, and the content of the assistant's turn."""
    problems, blocks = stream_problems(stream), dict[int, JsonObject]()
    texts: dict[int, str] = {}
    for event in stream.events:
        index = count(event.value.get("index"))
        block = event.value.get("content_block")
        if event.name == "content_block_start" and isinstance(block, dict):
            blocks[index], texts[index] = dict(block), ""
        for name in ("text", "thinking", "partial_json"):
            texts[index] = texts.get(index, "") + words(at(event.value, "delta", name))
    content: list[Json] = []
    for index, block in blocks.items():
        text = texts.get(index, "")
        if block.get("type") == "tool_use":
            problems += [wrong] if (wrong := arguments_problem(text or "{}")) else []
            content.append({**block, "input": {"city": "Oslo"}})
        elif block.get("type") == "text" and text:
            content.append({"type": "text", "text": text})
    reasons = [at(e.value, "delta", "stop_reason") for e in stream.events if e.name == "message_delta"]
    if any(b.get("type") == "tool_use" for b in blocks.values()) and "tool_use" not in reasons:
        problems.append(f"stop_reason is {reasons} although there is a call")
    return problems, content


def _tools(talk: Talk) -> Finding:
    question: JsonObject = {"role": "user", "content": CITY}
    tools: list[Json] = [_TOOL]
    body = ask(talk, question, tools=tools, stream=True, max_tokens=256)
    problems, content = called(stream_of(talk.post(PATH, body, headers=VERSION)))
    calls = [block for block in rows(content) if block.get("type") == "tool_use"]
    if problems:
        return failed(problems[0], FIX_TOOLS)
    if not calls:
        return skipped("the model made no call")
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": words(c.get("id")), "content": "14 degrees"} for c in calls
    ]
    turns: tuple[JsonObject, ...] = ({"role": "assistant", "content": content}, {"role": "user", "content": results})
    got = talk.post(PATH, ask(talk, question, *turns, tools=tools, max_tokens=64), headers=VERSION)
    return judged(_whole_problems(got), f"{len(calls)} call(s), then an answer")


def _structured(talk: Talk) -> Finding:
    form: JsonObject = {"format": {"type": "json_schema", "schema": SCHEMA}}
    body = ask(talk, {"role": "user", "content": CITY}, output_config=form, max_tokens=128)
    got = talk.post(PATH, body, headers=VERSION)
    if got.status != 200:
        return failed(got.shown)
    text = "".join(words(block.get("text")) for block in rows(at(got.value, "content")))
    if fits(text):
        return passed(" ".join(text[:80].split()))
    if at(got.value, "stop_reason") == "max_tokens":
        return skipped("the answer reached its limit before its structure was whole")
    return failed(f"the answer does not fit the schema: {text[:120]!r}")


def _counted(talk: Talk) -> Finding:
    body = ask(talk)
    body.pop("max_tokens")
    got = talk.post(f"{PATH}/count_tokens", body, headers=VERSION)
    found = count(at(got.value, "input_tokens"))
    return judged([] if got.status == 200 and found > 0 else [got.shown], f"{found} tokens")


def error_problems(got: Got, *wanted: int) -> list[str]:
    """Complain about an error that an Anthropic client could not read."""
    problems = [] if got.status in wanted else [f"status {got.status}, not {' or '.join(map(str, wanted))}"]
    if at(got.value, "type") != "error" or not isinstance(at(got.value, "error", "message"), str):
        problems.append(f"not the shape {{type: error, error: {{type, message}}}}: {got.shown}")
    return problems


def _bad_json(talk: Talk) -> Finding:
    got = talk.post(PATH, b'{"model": ', headers=VERSION)
    return judged(error_problems(got, 400), got.shown)


def _no_model(talk: Talk) -> Finding:
    got = talk.post(PATH, {**ask(talk), "model": "stoker-no-such-model"}, headers=VERSION)
    if got.status == 200:
        return skipped("it answers for any model name")
    return judged(error_problems(got, 404), got.shown)


PROBES: Final = (
    Probe(name="messages.whole", what="an answer in one piece", run=_whole),
    Probe(name="messages.stream", what="a stream of blocks from message_start to message_stop", run=_stream),
    Probe(name="messages.betas", what="?beta=true and beta headers that it does not know", run=_betas),
    Probe(name="messages.unknown-members", what="thinking, effort, context edits, unknown members", run=_unknown),
    Probe(name="messages.system-in-the-middle", what="system blocks, and a role system in the list", run=_middle),
    Probe(name="messages.either-header", what="the key as x-api-key and as a bearer token", run=_either_header),
    Probe(name="messages.limit", what="max_tokens ends with max_tokens", run=_limit),
    Probe(name="messages.large-limit", what="a limit that is too high is lowered, not refused", run=_large_limit),
    Probe(name="messages.tools", what="a tool turn, streamed, and its result", run=_tools),
    Probe(name="messages.structured", what="a JSON schema is kept", run=_structured),
    Probe(name="messages.count-tokens", what="a prompt can be counted", run=_counted),
    Probe(name="messages.bad-json", what="a broken body is a readable 400", run=_bad_json),
    Probe(name="messages.no-model", what="an unknown model is a readable 404", run=_no_model),
)
