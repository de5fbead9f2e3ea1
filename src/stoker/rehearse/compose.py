"""What does the engine say to one request? The pieces of its answer, whatever the dialect, and why it ends. Pure."""

import json
from dataclasses import dataclass

from stoker.base.json import JsonObject
from stoker.rehearse.request import Request, tokens_of
from stoker.rehearse.said import Arguments, Call, Close, Said, Text, Thought
from stoker.rehearse.sample import sample
from stoker.rehearse.script import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsers:
    """Which markup the engine takes out of the text, whatever the script says."""

    tool: bool = False
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Composition:
    """The pieces, and how the answer ends."""

    said: tuple[Said, ...]
    close: Close


_ENDLESS = 8192  # tokens: longer than anybody's limit


def compose(request: Request, script: Script, parsers: Parsers) -> Composition:
    """Write the pieces of the answer and the reason why it ends."""
    if script.empty:
        return Composition((), Close(reason="stop"))
    if script.endless_thinking:
        endless = tokens_of(script.reasoning or "hmm ") * _ENDLESS
        parsed = parsers.reasoning or not script.raw_reasoning_markup
        return _limited(
            [(Thought if parsed else Text)(word) for word in endless[:_ENDLESS]], request, Close(reason="length")
        )
    said = _thoughts(request, script, parsed=parsers.reasoning or not script.raw_reasoning_markup)
    called = _tools(request, script)
    if called:
        said += [Text(word) for word in tokens_of(script.preface)]
        parsed = parsers.tool or not script.raw_tool_markup
        said += _calls(request, script, called) if parsed else _markup(script, called)
        reason = "tool_calls" if parsed and "finish_stop" not in script.tool_deltas else "stop"
        return _limited(said, request, Close(reason=reason))
    text, stop = _until_stop(_text(request, script), request.stops)
    said += [Text(word) for word in tokens_of(text)] or [Text(text or " ")]
    return _limited(said, request, Close(reason="stop", stop=stop))


def _text(request: Request, script: Script) -> str:
    if request.schema is not None and not script.ignore_schema:
        return json.dumps(sample(request.schema))
    wanted = request.max_tokens if request.exact and request.max_tokens else script.tokens
    if not wanted:
        return script.text
    words = tokens_of(f"{script.text} ") or [" "]  # repeated words stay apart
    return "".join(words[index % len(words)] for index in range(wanted))


def _until_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str]:
    """Give the text before the stop sequence that comes first, and which one it is."""
    found = [(text.index(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, ""
    at, stop = min(found)
    return text[:at], stop


def _limited(said: list[Said], request: Request, close: Close) -> Composition:
    limit = request.max_tokens
    if limit is None or len(said) <= limit:
        return Composition(tuple(said), close)
    return Composition(tuple(said[:limit]), Close(reason="length"))


def _thoughts(request: Request, script: Script, *, parsed: bool) -> list[Said]:
    if not script.reasoning or request.dialect == "completions":
        return []
    if parsed:
        return [Thought(word) for word in tokens_of(script.reasoning)]
    return [Text(word) for word in tokens_of(f"<think> {script.reasoning} </think> ")]


def _tools(request: Request, script: Script) -> list[JsonObject]:
    """Choose the tools of this turn's calls, among those that the client really offers."""
    if not request.tools or not script.calls:
        return []
    offered = {str(tool["name"]): tool for tool in request.tools}
    wanted = [offered[name] for name in script.tool_names if name in offered]
    if request.must_call or not script.tool_names:
        return [request.tools[index % len(request.tools)] for index in range(script.calls)]
    return wanted[:1] * script.calls


def _arguments(tool: JsonObject, script: Script) -> str:
    """Write arguments that fit a tool's schema: the required ones, and those of the script's that it knows."""
    schema = tool.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known = properties if isinstance(properties, dict) else {}
    made = sample(schema) if known else {}
    required = made if isinstance(made, dict) else {}
    return json.dumps({**required, **{n: v for n, v in script.tool_arguments.items() if n in known}})


def _calls(request: Request, script: Script, tools: list[JsonObject]) -> list[Said]:
    said: list[Said] = []
    for index, tool in enumerate(tools):
        arguments = "" if "empty_arguments" in script.tool_deltas else _arguments(tool, script)
        half = len(arguments) // 2
        said.append(Call(index, f"call_{request.number}_{index}", str(tool["name"])))
        said += [Arguments(index, arguments[:half]), Arguments(index, arguments[half:])]
    return said[:-1] if script.half_call else said


def _markup(script: Script, tools: list[JsonObject]) -> list[Said]:
    """Write calls as a model does, and as they stay in the text when nobody parses them."""
    said: list[Said] = []
    for tool in tools:
        call = json.dumps({"name": tool["name"], "arguments": json.loads(_arguments(tool, script))})
        said += [Text(word) for word in ("<tool_call>\n", f"{call}\n", "</tool_call>\n")]
    return said
