"""One request and one script make a sequence of timed events; the server only carries them out. Pure.

The time between tokens is an event of its own, so that a batching model of time can take its place later.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.rehearse.request import Request, sample_arguments, tokens_of
from stoker.rehearse.script import Script, calm


@dataclass(frozen=True, slots=True)
class Wait:
    """Let this many seconds pass; None: for ever."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Head:
    """Begin the answer. ``length``: of the body, or None for a stream."""

    status: int
    length: int | None = None
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes of the body. ``tokens``: how many of the answer's are in it."""

    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """End the answer as it should be, with the reason that the metrics count."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection in the middle; ``reset``: so that the peer's kernel reports an error."""

    reset: bool


@dataclass(frozen=True, slots=True)
class Crash:
    """End the process."""


Event: TypeAlias = Wait | Head | Send | End | Cut | Crash

_CREATED: Final = 1_700_000_000
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What the engine was started with."""

    model: str
    context_tokens: int = 0
    tool_parser: bool = False
    reasoning_parser: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the answer as its stream shows it."""

    delta: JsonObject
    tokens: int = 1


def answer(request: Request, script: Script, engine: Engine) -> Iterator[Event]:
    """Write the events of one answer."""
    told = script if script.every <= 1 or request.number % script.every == 0 else calm(script)
    if told.hang:
        yield Wait(None)
        return
    if told.status:
        yield from _refusal(told.status, "scripted refusal", "server_error", retry_after=told.retry_after_seconds)
        return
    if engine.context_tokens and request.prompt_tokens > engine.context_tokens:
        message = f"the prompt has {request.prompt_tokens} tokens, the context {engine.context_tokens}"
        yield from _refusal(400, message, "BadRequestError")
        return
    if request.dialect == "embeddings":
        yield from _whole(_embeddings(request, _name(told, engine)))
        return
    parts, reason = _parts(request, told, engine)
    if request.stream:
        yield from _stream(request, told, name=_name(told, engine), parts=parts, reason=reason)
    else:
        yield from _aggregate(request, told, name=_name(told, engine), parts=parts, reason=reason)


def _name(script: Script, engine: Engine) -> str:
    return script.model or engine.model


def _refusal(status: int, message: str, kind: str, *, retry_after: int = 0) -> Iterator[Event]:
    data = _encode({"error": {"message": message, "type": kind, "param": None, "code": status}})
    yield Head(status, len(data), retry_after)
    yield Send(data)
    yield End("error")


def _whole(body: JsonObject) -> Iterator[Event]:
    data = _encode(body)
    yield Head(200, len(data))
    yield Send(data)
    yield End("stop")


def _parts(request: Request, script: Script, engine: Engine) -> tuple[list[_Part], str]:
    """Write the pieces of the answer and the reason why it ends."""
    parts = _thoughts(request, script, parsed=engine.reasoning_parser or not script.raw_reasoning_markup)
    if request.tools and script.calls:
        parts += _calls(request, script, parsed=engine.tool_parser or not script.raw_tool_markup)
        parsed = any("tool_calls" in part.delta for part in parts)
        return _limited(parts, request, "tool_calls" if parsed else "stop")
    wanted = script.tokens or len(tokens_of(script.text))
    words = tokens_of(f"{script.text} " if script.tokens else script.text) or [" "]  # repeated words stay apart
    parts += [_Part({"content": words[index % len(words)]}) for index in range(wanted)]
    return _limited(parts, request, "stop")


def _limited(parts: list[_Part], request: Request, reason: str) -> tuple[list[_Part], str]:
    limit = request.max_tokens
    if limit is None or sum(part.tokens for part in parts) <= limit:
        return parts, reason
    kept: list[_Part] = []
    for part in parts:
        if sum(p.tokens for p in kept) + part.tokens > limit:
            break
        kept.append(part)
    return kept, "length"


def _thoughts(request: Request, script: Script, *, parsed: bool) -> list[_Part]:
    if not script.reasoning or request.dialect != "chat":
        return []
    if parsed:
        return [_Part({"reasoning_content": word}) for word in tokens_of(script.reasoning)]
    return [_Part({"content": word}) for word in tokens_of(f"<think> {script.reasoning} </think> ")]


def _calls(request: Request, script: Script, *, parsed: bool) -> list[_Part]:
    parts: list[_Part] = []
    for index in range(script.calls):
        tool = request.tools[index % len(request.tools)]
        arguments = sample_arguments(tool)
        if not parsed:
            call = json.dumps({"name": tool["name"], "arguments": json.loads(arguments)})
            parts += [_Part({"content": word}) for word in ("<tool_call>\n", f"{call}\n", "</tool_call>\n")]
            continue
        start: JsonObject = {
            "index": index,
            "id": f"call_{request.number}_{index}",
            "type": "function",
            "function": {"name": tool["name"], "arguments": ""},
        }
        parts.append(_Part({"tool_calls": [start]}))
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            parts.append(_Part({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    return parts


def _usage(request: Request, output: int) -> JsonObject:
    return {
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": request.prompt_tokens + output,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _stream(request: Request, script: Script, *, name: str, parts: list[_Part], reason: str) -> Iterator[Event]:
    yield Head(200)
    if request.dialect == "chat":
        yield Send(_frame(request, name, {"role": "assistant", "content": ""}))
    yield Wait(script.first_token_seconds)
    sent = 0
    for part in parts:
        fault = _fault(script, sent)
        if fault is not None:
            yield from fault
            return
        yield Send(_frame(request, name, part.delta), part.tokens)
        sent += part.tokens
        yield Wait(part.tokens / script.tokens_per_second if script.tokens_per_second else 0.0)
    fault = _fault(script, sent)
    if fault is not None:
        yield from fault
        return
    if "finish" not in script.missing:
        yield Send(_frame(request, name, {}, reason))
    if request.usage and "usage" not in script.missing:
        yield Send(_data({**_envelope(request, name), "choices": [], "usage": _usage(request, sent)}))
    if "done" not in script.missing:
        yield Send(b"data: [DONE]\n\n")
    yield End(reason)


def _fault(script: Script, sent: int) -> list[Event] | None:
    """Tell what goes wrong once this many tokens have been sent."""
    if script.crash_after_tokens is not None and sent >= script.crash_after_tokens:
        return [Crash()]
    if script.cut_after_tokens is not None and sent >= script.cut_after_tokens:
        # A clean cut looks like an ordinary end of the body: no terminator of the dialect, but one of HTTP.
        return [Cut(reset=True)] if script.cut == "reset" else [End("abort")]
    if script.stall_after_tokens is not None and sent >= script.stall_after_tokens:
        return [Wait(None)]
    if script.error_after_tokens is not None and sent >= script.error_after_tokens:
        error = {"error": {"message": "scripted error", "type": "InternalServerError", "code": 500}}
        return [Send(_data(error)), Send(b"data: [DONE]\n\n"), End("error")]
    return None


def _aggregate(request: Request, script: Script, *, name: str, parts: list[_Part], reason: str) -> Iterator[Event]:
    total = sum(part.tokens for part in parts)
    pace = total / script.tokens_per_second if script.tokens_per_second else 0.0
    yield Wait(script.first_token_seconds + pace)
    body: JsonObject = {**_envelope(request, name), "object": _object(request, stream=False)}
    finish = None if "finish" in script.missing else reason
    body["choices"] = [{"index": 0, **_message(request, parts), "finish_reason": finish}]
    if "usage" not in script.missing:
        body["usage"] = _usage(request, total)
    data = _encode(body)
    fault = _fault(script, total)
    if fault is None:
        yield Head(200, len(data))
        yield Send(data, total)
        yield End(reason)
        return
    if isinstance(fault[0], Cut | End):
        yield Head(200, len(data))
        yield Send(data[: len(data) // 2])
        yield Cut(reset=isinstance(fault[0], Cut))
        return
    yield from fault if not isinstance(fault[0], Send) else _refusal(500, "scripted error", "InternalServerError")


def _message(request: Request, parts: list[_Part]) -> JsonObject:
    text = "".join(str(part.delta.get("content", "")) for part in parts)
    if request.dialect == "completions":
        return {"text": text}
    message: JsonObject = {"role": "assistant", "content": text or None}
    thoughts = "".join(str(part.delta.get("reasoning_content", "")) for part in parts)
    if thoughts:
        message["reasoning_content"] = thoughts
    calls = _joined_calls(parts)
    if calls:
        message["tool_calls"] = calls
    return {"message": message}


def _joined_calls(parts: list[_Part]) -> list[Json]:
    """Put the pieces of each call together, as a client does."""
    calls: dict[int, JsonObject] = {}
    for part in parts:
        listed = part.delta.get("tool_calls")
        for piece in listed if isinstance(listed, list) else []:
            if not isinstance(piece, dict):
                continue
            index, function = piece["index"], piece["function"]
            if not isinstance(index, int) or not isinstance(function, dict):
                continue
            call = calls.setdefault(
                index, {"id": piece.get("id"), "type": "function", "function": {**function, "arguments": ""}}
            )
            whole = call["function"]
            if isinstance(whole, dict):
                whole["arguments"] = f"{whole['arguments']}{function['arguments']}"
    return list(calls.values())


def _object(request: Request, *, stream: bool) -> str:
    if request.dialect == "completions":
        return "text_completion"
    return "chat.completion.chunk" if stream else "chat.completion"


def _envelope(request: Request, name: str) -> JsonObject:
    kind = _object(request, stream=True)
    return {"id": f"chatcmpl-{request.number}", "object": kind, "created": _CREATED, "model": name}


def _frame(request: Request, name: str, delta: JsonObject, finish: str | None = None) -> bytes:
    choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
    if request.dialect == "completions":
        choice = {"index": 0, "text": delta.get("content", ""), "finish_reason": finish}
    return _data({**_envelope(request, name), "choices": [choice]})


def _data(value: object) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"


def _embeddings(request: Request, name: str) -> JsonObject:
    """Vectors that depend on nothing but their place: enough to see that they arrive."""
    vectors: list[Json] = [
        {"object": "embedding", "index": index, "embedding": [1.0 / (index + place + 1) for place in range(8)]}
        for index in range(request.inputs)
    ]
    usage: JsonObject = {"prompt_tokens": request.prompt_tokens, "total_tokens": request.prompt_tokens}
    return {"object": "list", "data": vectors, "model": name, "usage": usage}
