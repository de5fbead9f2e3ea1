"""Bodies as real clients send them: their recorded shapes, with every text filled to the length that it had.

The shapes hold no prompt: texts are ``<text 5580 chars>``, identifiers ``<uuid>``. Tools are kept by name and
parameters; their descriptions share what is missing to the recorded size of the body.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Final

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.checks.conformance.probe import count, rows, words

_TEXT: Final = re.compile(r"<text (\d+) chars>")
_IDS: Final = re.compile(r"<(uuid|hex|id)>")
_FILLER: Final = "The stoker feeds the fire, and the fire drives the engine. "
_UUID: Final = "00000000-0000-4000-8000-000000000000"
_WORDS: Final = {"uuid": _UUID, "hex": "0" * 64, "id": "0001"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One recorded request."""

    client: str
    path: str
    body_bytes: int
    body: JsonObject

    @property
    def surface(self) -> str:
        """The dialect."""
        found = {"/v1/messages": "messages", "/v1/responses": "responses", "/v1/chat/completions": "chat"}
        return found.get(self.path.partition("?")[0], "other")

    def filled(self, model: str) -> JsonObject:
        """Give the body as it was, for another model."""
        return {**self.body, "model": model}


def shapes() -> Iterator[Shape]:
    """Read the recorded shapes that come with the package."""
    folder = resources.files("stoker.checks.conformance") / "shapes.jsonl"
    for line in folder.read_bytes().splitlines():
        yield read(line)


def read(line: bytes) -> Shape:
    """Read one recorded request and fill it."""
    raw: JsonObject = msgspec.json.decode(line)
    body, size = raw.get("body"), count(raw.get("body_bytes"))
    whole = _filled(body) if isinstance(body, dict) else {}
    made = whole if isinstance(whole, dict) else {}
    tools = rows(raw.get("tools"))
    if tools:
        missing = size - len(msgspec.json.encode({**made, "tools": _tools(tools, str(raw["path"]), 0)}))
        made = {**made, "tools": _tools(tools, str(raw["path"]), max(missing, 0) // len(tools))}
    return Shape(client=words(raw.get("client")), path=words(raw.get("path")), body_bytes=size, body=made)


def _filled(value: Json) -> Json:
    """Fill the texts, and make identifiers of the placeholders."""
    if isinstance(value, dict):
        return {name: _filled(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if value == "function_call_<id>":  # the recording took the end of the word for an identifier
        return "function_call_output"
    text = _TEXT.sub(lambda found: filler(int(found[1])), value)
    return _IDS.sub(lambda found: _WORDS[found[1]], text)


def filler(length: int) -> str:
    """Write a text of so many characters."""
    return (_FILLER * (length // len(_FILLER) + 1))[:length]


def _tools(tools: list[JsonObject], path: str, spare: int) -> list[Json]:
    return [_tool(tool, path, filler(spare)) for tool in tools]


def _tool(tool: JsonObject, path: str, description: str) -> Json:
    """Make a tool of what was recorded of it: its name and the names of its parameters."""
    kind, extra = tool.get("type"), tool.get("extra")
    more = dict(extra) if isinstance(extra, dict) else {}
    if kind not in (None, "function", "namespace"):
        return {"type": kind, **more}
    named = tool.get("param_names")
    names = [str(n) for n in named] if isinstance(named, list) else []
    properties: JsonObject = {name: {"type": "string"} for name in names}
    schema: JsonObject = {"type": "object", "properties": properties, "required": tool.get("required") or []}
    about: JsonObject = {"name": tool.get("name"), "description": description}
    if path.startswith("/v1/messages"):
        return {**about, "input_schema": schema, **more}
    if path.startswith("/v1/responses"):
        if kind == "namespace":
            inner: JsonObject = {"type": "function", "name": "inner", "description": "d", "parameters": schema}
            return {"type": "namespace", **about, "tools": [inner], **more}
        return {"type": "function", **about, "parameters": schema, **more}
    return {"type": "function", "function": {**about, "parameters": schema}}
