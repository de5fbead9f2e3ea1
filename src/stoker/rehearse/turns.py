"""What a conversation says in each dialect: its text, whether a tool has just answered, and which tools there are."""

from collections.abc import Iterator
from dataclasses import dataclass

from stoker.base.json import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of a conversation. ``result``: it carries what a tool gave back."""

    role: str
    text: str
    result: bool = False


def turns(raw: JsonObject) -> tuple[Turn, ...]:
    """Read the conversation of a body, in whichever members its dialect has it."""
    found = [Turn("system", content(raw[name])) for name in ("system", "instructions") if raw.get(name)]
    messages, given = raw.get("messages"), raw.get("input")
    if isinstance(messages, list):
        found += [_message(m) for m in messages if isinstance(m, dict)]
    elif isinstance(given, list):
        found += [_item(i) if isinstance(i, dict) else Turn("user", content(i)) for i in given]
    else:
        found += [
            Turn("user", content(raw.get(name))) for name in ("prompt", "input", "content", "query") if raw.get(name)
        ]
    documents = raw.get("documents")
    found += [Turn("user", content(d)) for d in documents] if isinstance(documents, list) else []
    return tuple(found)


def answered(conversation: tuple[Turn, ...]) -> bool:
    """Tell whether a tool has answered since the model last spoke; clients put notes of theirs behind the result."""
    for turn in reversed(conversation):
        if turn.role == "assistant":
            return False
        if turn.result:
            return True
    return False


def _message(message: JsonObject) -> Turn:
    role, given = str(message.get("role") or "user"), message.get("content")
    blocks = given if isinstance(given, list) else []
    result = role == "tool" or any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)
    return Turn(role, content(given), result)


def _item(item: JsonObject) -> Turn:
    """One item of a responses body: a message, a call, what a call gave, a thought."""
    kind = str(item.get("type") or "message")
    if kind == "message":
        return Turn(str(item.get("role") or "user"), content(item.get("content")))
    if kind.endswith("_output"):
        return Turn("tool", content(item.get("output")), result=True)
    return Turn("assistant", content(item.get("arguments") or item.get("summary")))


def content(value: Json) -> str:
    """Take the text out of a string, a part, or a list of them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return content(value.get("text") or value.get("content") or value.get("thinking"))
    return " ".join(content(part) for part in value) if isinstance(value, list) else ""


def tools(raw: JsonObject) -> Iterator[JsonObject]:
    """Name the functions that may be called, each with ``name`` and the ``parameters`` it takes."""
    listed = raw.get("tools")
    for tool in listed if isinstance(listed, list) else []:
        if not isinstance(tool, dict) or tool.get("defer_loading") is True:
            continue
        if tool.get("type", "custom") not in ("function", "custom"):
            continue  # a tool of the provider's own, such as a web search: nothing that an engine could call
        function = tool.get("function")
        found = function if isinstance(function, dict) else tool
        if found.get("name"):
            yield {"name": found["name"], "parameters": found.get("parameters") or found.get("input_schema")}


def choice(raw: JsonObject) -> str:
    """Read the tool choice: ``none``, ``auto``, ``required`` or the name of the tool that must be called."""
    given = raw.get("tool_choice")
    if isinstance(given, dict):
        function = given.get("function")
        name = given.get("name") or (function.get("name") if isinstance(function, dict) else None)
        return str(name or given.get("type") or "auto")
    return given if isinstance(given, str) else "auto"


def schema(raw: JsonObject) -> JsonObject | None:
    """Give the JSON schema that the answer must have, if one was asked for."""
    for outer, inner in (("response_format", "json_schema"), ("text", "format"), ("output_config", "format")):
        asked = raw.get(outer)
        found = asked.get(inner) if isinstance(asked, dict) else None
        wanted = found.get("schema") if isinstance(found, dict) else None
        if isinstance(wanted, dict):
            return wanted
    return None
