"""Does the engine turn this model's raw text into tool calls and reasoning, or leave the markup in the answer?

Four requests go through the model's own template: a tool call, two calls at once, reasoning, a system turn in the
middle. Then:

1. *False* only on proof: known markup stands in the text, and the parsed answer lacks what it marks.
2. *True* only on proof too: a call came back parsed, with arguments that are JSON.
3. A model that made no call proves nothing (*Unknown*); a template that never mentions tools has none to parse.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.decide.conditions import FALSE, TRUE, UNKNOWN

_WEATHER: Final = "get_weather"
_TOOL: Final[JsonObject] = {
    "type": "function",
    "function": {
        "name": _WEATHER,
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def _ask(*turns: tuple[str, str], tools: bool = False) -> JsonObject:
    messages: list[Json] = [{"role": role, "content": text} for role, text in turns]
    body: JsonObject = {"messages": messages, "max_tokens": 512, "temperature": 0}
    return {**body, "tools": [_TOOL], "tool_choice": "auto"} if tools else body


PROBES: Final[Mapping[str, JsonObject]] = {
    "tool": _ask(("user", "What is the weather in Oslo? Use the tool."), tools=True),
    "parallel": _ask(("user", "Get the weather in Oslo and in Rome: call the tool twice, at once."), tools=True),
    "reasoning": _ask(("user", "A train leaves at 9:40 and arrives at 11:05. How long is the ride? Think first.")),
    "system": _ask(("user", "Hello."), ("assistant", "Hello!"), ("system", "Answer in one word."), ("user", "Go on.")),
}

# What models write around calls and around thoughts, by the families that do.
_CALL_MARKUP: Final = re.compile(
    r"<tool_call>|<function=|<\|tool_calls?[_|>]|\[TOOL_CALLS\]|<\|python_tag\|>|<function_calls?>|<\|tool▁calls?▁begin\|>|"
    r"<｜tool▁calls?▁begin｜>|<\|action_start\|>|to=functions\.|<minimax:tool_call>|<invoke name="  # noqa: RUF001 - as those models write it
)
_THOUGHT_MARKUP: Final = re.compile(
    r"</?think(?:ing)?>|</?reasoning>|\[/?THINK\]|<\|channel\|>analysis|</?seed:think>|<\|START_THINKING\|>|◁/?think▷"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the condition ParsersVerified says. ``applicable`` is false where there is nothing to parse."""

    status: str
    reason: str
    message: str = ""
    action: str = ""
    applicable: bool = True


@dataclass(frozen=True, slots=True)
class _Seen:
    """One answer, taken apart. ``error``: what it said instead of answering."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reasoning: str = ""
    error: str = ""


def judge(answers: Mapping[str, JsonObject], *, flags: JsonObject, template: str = "") -> Verdict:
    """Judge the answers to PROBES, each ``{status, body}``. ``template``: the model's, empty when it is not known."""
    seen = {name: _read(answer) for name, answer in answers.items()}
    return _left_raw(seen, flags) or _tools(seen, flags, without=bool(template) and "tools" not in template)


def _left_raw(seen: Mapping[str, _Seen], flags: JsonObject) -> Verdict | None:
    """Find markup that should have been parsed away."""
    for name, answer in seen.items():
        call = _raw_call(answer.text) if not answer.calls else ""
        if call:
            return Verdict(
                status=FALSE,
                reason="ToolMarkupInText",
                message=f"asked for a tool call ({name}), the model wrote one, but it came back as text: {call}",
                action=_set(flags, "tool"),
            )
        thought = _THOUGHT_MARKUP.search(answer.text)
        if thought:
            return Verdict(
                status=FALSE,
                reason="ReasoningMarkupInText",
                message=f"the model's thoughts came back inside its answer ({name}): {_around(answer.text, thought)}",
                action=_set(flags, "reasoning"),
            )
    return None


def _tools(seen: Mapping[str, _Seen], flags: JsonObject, *, without: bool) -> Verdict:
    """Judge the two tool probes, once no markup was left raw."""
    if without:
        message = "the model's template does not use tools" + _aside(seen)
        return Verdict(status=UNKNOWN, reason="NotApplicable", message=message, applicable=False)
    asked = [seen[name] for name in ("tool", "parallel") if name in seen]
    calls = [call for answer in asked for call in answer.calls]
    refused = next((answer.error for answer in asked if answer.error), "")
    if calls and all(name == _WEATHER and _is_object(arguments) for name, arguments in calls):
        together = len(seen["parallel"].calls) if "parallel" in seen else 0
        both = "two calls at once came back parsed" if together > 1 else "one call at a time was seen"
        return Verdict(status=TRUE, reason="CallsParsed", message=both + _aside(seen))
    if calls:
        name, arguments = calls[0]
        message = f"a call came back that cannot be read: {name}({arguments[:80]})"
        return Verdict(status=UNKNOWN, reason="CallsUnreadable", message=message)
    if refused:
        message = f"a request with tools was refused: {refused}"
        return Verdict(status=UNKNOWN, reason="ToolsRefused", message=message, action=_set(flags, "tool"))
    message = "the model made no call, so its parser was not seen at work" + _aside(seen)
    return Verdict(status=UNKNOWN, reason="NoCallMade", message=message)


def _aside(seen: Mapping[str, _Seen]) -> str:
    """What the other two probes showed, for the message."""
    told = []
    if "system" in seen and seen["system"].error:
        told.append(f"a system turn in the middle is refused ({seen['system'].error})")
    if any(answer.reasoning for answer in seen.values()):
        told.append("reasoning comes back apart from the answer")
    return "".join(f"; {line}" for line in told)


def _set(flags: JsonObject, what: str) -> str:
    flag = flags.get(what)
    return f"set spec.engine.{flag}" if isinstance(flag, str) and flag.isidentifier() else f"set {flag or 'its parser'}"


def _raw_call(text: str) -> str:
    """Find a call that was left in the text: by its markup, or the whole text being one call to the probe's tool."""
    match = _CALL_MARKUP.search(text)
    if match:
        return _around(text, match)
    call = _object(text.strip())
    is_call = call.get("name") == _WEATHER and isinstance(call.get("arguments") or call.get("parameters"), dict)
    return text.strip()[:80] if is_call else ""


def _around(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - 10) : match.end() + 40].replace("\n", " ")


def _read(answer: JsonObject) -> _Seen:
    """Take a chat completion apart without trusting its shape."""
    body = answer.get("body")
    status = answer.get("status")
    if status != 200:
        error = body.get("error") if isinstance(body, dict) else None
        said = error.get("message") if isinstance(error, dict) else error
        return _Seen(error=f"{status}: {said or 'no reason given'}"[:200])
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return _Seen(error="the answer holds no message")
    listed = message.get("tool_calls")
    functions = [call.get("function") for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    return _Seen(
        text=_text(message.get("content")),
        calls=tuple((_text(f.get("name")), _text(f.get("arguments"))) for f in functions if isinstance(f, dict)),
        reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
    )


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _object(text: str) -> JsonObject:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_object(text: str) -> bool:
    return text.strip() == "{}" or bool(_object(text))
