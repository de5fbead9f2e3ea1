"""How is a chat request said to an engine that speaks responses?"""

from typing import Any, Final

from stoker.wire.ask.functions import of_chat
from stoker.wire.ask.habits import Engine
from stoker.wire.ask.notes import Notes, given, objects, refusal, text_of
from stoker.wire.ask.to_messages import refuse_unsayable

_READ: Final = frozenset(
    {
        "model", "messages", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls",
        "stream", "stream_options", "temperature", "top_p", "reasoning_effort", "response_format", "user", "logprobs",
        "top_logprobs", "store",
    }
)  # fmt: skip
_UNSAYABLE: Final = ("stop", "logit_bias", "functions", "function_call", "audio")


def responses(request: dict[str, Any], notes: Notes, engine: Engine) -> dict[str, Any]:
    """Translate."""
    refuse_unsayable(request, _UNSAYABLE, "responses")
    for name in request:
        if name not in _READ and name not in _UNSAYABLE and name != "n":
            notes.drop(name)
    out: dict[str, Any] = given(request, "stream", "temperature", "top_p", "parallel_tool_calls", "user")
    out["store"] = False
    out["input"] = [
        item
        for number, message in enumerate(objects(request.get("messages"), "messages"))
        for item in _items(message, f"messages[{number}]", notes, engine)
    ]
    limit = request.get("max_completion_tokens", request.get("max_tokens"))
    if limit is not None:
        out["max_output_tokens"] = limit
    _tools(out, request)
    _output(out, request)
    return out


def _items(message: dict[str, Any], where: str, notes: Notes, engine: Engine) -> list[dict[str, Any]]:
    role = message.get("role")
    content = f"{where}.content"
    if role == "tool":
        output = _parts(message.get("content"), content, text="input_text")
        said: object = output  # a list only where there is more than text: not every engine takes one
        if all(part["type"] == "input_text" for part in output):
            said = "\n".join(part["text"] for part in output)
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": said}]
    if role == "assistant":
        return _spoken(message, where, notes, engine)
    if role not in ("user", "system", "developer"):
        raise refusal(f"{where}.role", f"{role!r} cannot be translated")
    parts = _parts(message.get("content"), content, text="input_text")
    return [{"type": "message", "role": role, "content": parts}]


def _spoken(message: dict[str, Any], where: str, notes: Notes, engine: Engine) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    thought = text_of(message.get("reasoning_content") or message.get("reasoning"), f"{where}.reasoning_content")
    if thought and engine.open:
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]})
    elif thought:
        notes.drop("messages.reasoning_content")
    parts = _parts(message.get("content"), f"{where}.content", text="output_text")
    if parts:
        items.append({"type": "message", "role": "assistant", "content": parts})
    for number, call in enumerate(objects(message.get("tool_calls"), f"{where}.tool_calls")):
        inside = call.get("function") or {}
        if not isinstance(inside, dict):
            raise refusal(f"{where}.tool_calls[{number}].function", "an object is expected here")
        items.append(
            {
                "type": "function_call",
                "call_id": call.get("id"),
                "name": inside.get("name"),
                "arguments": text_of(inside.get("arguments"), f"{where}.tool_calls[{number}]") or "{}",
            }
        )
    return items


def _parts(content: object, where: str, *, text: str) -> list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": text, "text": content}] if content else []
    found: list[dict[str, Any]] = []
    for number, part in enumerate(objects(content, where)):
        at, kind = f"{where}[{number}]", part.get("type")
        if kind in ("text", "refusal"):
            found.append({"type": text, "text": text_of(part.get(kind), f"{at}.{kind}")})
        elif kind == "image_url":
            image = part.get("image_url")
            found.append({"type": "input_image", "image_url": image.get("url") if isinstance(image, dict) else image})
        else:
            raise refusal(at, f"a part of type {kind!r} cannot be shown to an engine that speaks responses")
    return found


def _tools(out: dict[str, Any], request: dict[str, Any]) -> None:
    tools = of_chat(request.get("tools"))
    if not tools:
        return
    out["tools"] = [{"type": "function", "strict": False, "parameters": {"type": "object"}, **tool} for tool in tools]
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        out["tool_choice"] = {"type": "function", "name": choice["function"].get("name")}
    elif choice in ("auto", "none", "required"):
        out["tool_choice"] = choice
    elif choice is not None:
        raise refusal("tool_choice", f"{choice!r} cannot be translated")


def _output(out: dict[str, Any], request: dict[str, Any]) -> None:
    if request.get("reasoning_effort"):
        out["reasoning"] = {"effort": request["reasoning_effort"]}
    if request.get("logprobs"):
        out["include"] = ["message.output_text.logprobs"]
        out["top_logprobs"] = request.get("top_logprobs") or 0
    shape = request.get("response_format")
    if shape is not None:
        if not isinstance(shape, dict):
            raise refusal("response_format", "an object is expected here")
        inside = shape.get("json_schema") if shape.get("type") == "json_schema" else None
        out["text"] = {"format": {"type": shape.get("type"), **(inside or {})}}
