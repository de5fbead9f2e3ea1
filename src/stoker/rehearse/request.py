"""A request as the scripted engine understands it: the dialect, the prompt's length, tools and limits."""

import json
import re
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from stoker.base.json import Json, JsonObject

Dialect = Literal["chat", "completions", "embeddings"]

PATHS: Final[dict[str, Dialect]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
}
_WORD: Final = re.compile(r"\S+\s*")
_SAMPLES: Final[dict[str, Json]] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``number`` counts those of this engine, from 1."""

    number: int
    dialect: Dialect
    stream: bool
    prompt_tokens: int
    max_tokens: int | None = None
    usage: bool = True  # report usage; in a stream only where it was asked for
    tools: tuple[JsonObject, ...] = ()
    inputs: int = 1


def tokens_of(text: str) -> list[str]:
    """A token of the scripted engine is a word with the space behind it."""
    return _WORD.findall(text)


def read(body: bytes, *, dialect: Dialect, number: int) -> Request | None:
    """Take a body apart; None when it is no JSON object."""
    try:
        raw = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    if not isinstance(raw, dict):
        return None
    stream = raw.get("stream") is True and dialect != "embeddings"
    options = raw.get("stream_options")
    limit = raw.get("max_completion_tokens") or raw.get("max_tokens")
    given = raw.get("input")
    return Request(
        number=number,
        dialect=dialect,
        stream=stream,
        prompt_tokens=len(tokens_of(_prompt(raw))),
        max_tokens=limit if isinstance(limit, int) else None,
        usage=not stream or (isinstance(options, dict) and options.get("include_usage") is True),
        tools=_tools(raw),
        inputs=len(given) if isinstance(given, list) else 1,
    )


def sample_arguments(tool: JsonObject) -> str:
    """Write arguments that fit a tool's schema: every required property with a value of its type."""
    schema = tool.get("parameters")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(required, list):
        return "{}"
    types = {str(name): properties.get(str(name)) for name in required}
    return json.dumps({name: _sample(kind, name) for name, kind in types.items()})


def _sample(schema: Json, name: str) -> Json:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return _SAMPLES.get(kind, name) if isinstance(kind, str) else name


def _prompt(raw: JsonObject) -> str:
    messages = raw.get("messages")
    if isinstance(messages, list):
        return " ".join(_content(m.get("content")) for m in messages if isinstance(m, dict))
    for key in ("prompt", "input"):
        value = raw.get(key)
        if value is not None:
            return _content(value)
    return ""


def _content(value: Json) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    return " ".join(_content(p.get("text")) if isinstance(p, dict) else _content(p) for p in parts)


def _tools(raw: JsonObject) -> tuple[JsonObject, ...]:
    """The tools that may be called now: none when the last turn is a tool's own answer."""
    tools, messages = raw.get("tools"), raw.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    answered = isinstance(last, dict) and last.get("role") == "tool"
    if not isinstance(tools, list) or answered or raw.get("tool_choice") == "none":
        return ()
    functions = (tool.get("function") for tool in tools if isinstance(tool, dict))
    return tuple(function for function in functions if isinstance(function, dict) and function.get("name"))
