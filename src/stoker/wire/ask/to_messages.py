"""How is a chat request said to an engine that speaks messages?"""

from typing import Any, Final

import msgspec

from stoker.wire.ask.functions import of_chat
from stoker.wire.ask.habits import Engine
from stoker.wire.ask.notes import Notes, given, objects, refusal, text_of

_READ: Final = frozenset(
    {
        "model", "messages", "max_tokens", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls",
        "stop", "stream", "stream_options", "temperature", "top_p", "top_k", "reasoning_effort", "response_format",
        "user",
    }
)  # fmt: skip
_UNSAYABLE: Final = ("logprobs", "top_logprobs", "logit_bias", "functions", "function_call", "audio")
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


def messages(request: dict[str, Any], notes: Notes, engine: Engine) -> dict[str, Any]:
    """Translate."""
    refuse_unsayable(request, _UNSAYABLE, "messages")
    for name in request:
        if name not in _READ and name not in _UNSAYABLE and name != "n":
            notes.drop(name)
    out: dict[str, Any] = given(request, "stream", "temperature", "top_p", "top_k")
    _conversation(out, objects(request.get("messages"), "messages"), notes, engine)
    limit = request.get("max_completion_tokens", request.get("max_tokens"))
    if limit is not None:
        out["max_tokens"] = limit
    stop = request.get("stop")
    if stop:
        out["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if isinstance(request.get("user"), str):
        out["metadata"] = {"user_id": request["user"]}
    _tools(out, request)
    _output(out, request)
    return out


def refuse_unsayable(request: dict[str, Any], names: tuple[str, ...], dialect: str) -> None:
    """Refuse what would make another answer and has no place in a dialect."""
    for name in names:
        if request.get(name):
            raise refusal(name, f"an engine that speaks {dialect} has none")
    if request.get("n") not in (None, 1):
        raise refusal("n", f"an engine that speaks {dialect} gives one answer")


def _conversation(out: dict[str, Any], items: list[dict[str, Any]], notes: Notes, engine: Engine) -> None:
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for number, message in enumerate(items):
        where, role = f"messages[{number}]", message.get("role")
        if role in ("system", "developer"):
            blocks = _blocks(message.get("content"), f"{where}.content")
            if turns:
                turns.append({"role": "system", "content": blocks})
            else:
                system += blocks
        elif role == "assistant":
            turns.append({"role": "assistant", "content": _spoken(message, where, notes, engine)})
        elif role == "tool":
            content = _blocks(message.get("content"), f"{where}.content")
            result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content}
            _user(turns, [result])
        elif role == "user":
            _user(turns, _blocks(message.get("content"), f"{where}.content"))
        else:
            raise refusal(f"{where}.role", f"{role!r} cannot be translated")
    if system:
        out["system"] = system
    out["messages"] = turns


def _user(turns: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> None:
    """Add to the user's turn: results of parallel calls must be in one."""
    if turns and turns[-1]["role"] == "user":
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": "user", "content": blocks})


def _spoken(message: dict[str, Any], where: str, notes: Notes, engine: Engine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    thought = message.get("reasoning_content") or message.get("reasoning")
    if thought and engine.open:
        found.append({"type": "thinking", "thinking": text_of(thought, f"{where}.reasoning_content"), "signature": ""})
    elif thought:
        notes.drop("messages.reasoning_content")  # a vendor takes back only what it has signed
    found += _blocks(message.get("content"), f"{where}.content")
    for number, call in enumerate(objects(message.get("tool_calls"), f"{where}.tool_calls")):
        inside = call.get("function") or {}
        at = f"{where}.tool_calls[{number}].function"
        if not isinstance(inside, dict):
            raise refusal(at, "an object is expected here")
        value = _input(text_of(inside.get("arguments"), f"{at}.arguments"))
        found.append({"type": "tool_use", "id": call.get("id"), "name": inside.get("name"), "input": value})
    return found


def _input(arguments: str) -> dict[str, Any]:
    """Read the arguments of a call that was made; a model may have written what is no object."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        value = None
    return value if isinstance(value, dict) else {"unparsed_arguments": arguments}


def _blocks(content: object, where: str) -> list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    found: list[dict[str, Any]] = []
    for number, part in enumerate(objects(content, where)):
        at, kind = f"{where}[{number}]", part.get("type")
        if kind in ("text", "refusal"):
            text = text_of(part.get(kind), f"{at}.{kind}")
            found += [{"type": "text", "text": text}] if text else []
        elif kind == "image_url":
            found.append({"type": "image", "source": _source(part.get("image_url"), f"{at}.image_url")})
        else:
            raise refusal(at, f"a part of type {kind!r} cannot be shown to an engine that speaks messages")
    return found


def _source(image: object, where: str) -> dict[str, Any]:
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise refusal(where, "an address is expected here")
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    head, _, data = url[5:].partition(",")
    if not head.endswith(";base64"):
        raise refusal(where, "only base64 can be shown to an engine that speaks messages")
    return {"type": "base64", "media_type": head.removesuffix(";base64"), "data": data}


def _tools(out: dict[str, Any], request: dict[str, Any]) -> None:
    tools = of_chat(request.get("tools"))
    if not tools:
        return
    empty = {"type": "object", "properties": {}}
    out["tools"] = [
        {**given(tool, "name", "description"), "input_schema": tool.get("parameters") or empty} for tool in tools
    ]
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("function"), dict):
        out["tool_choice"] = {"type": "tool", "name": choice["function"].get("name")}
    elif isinstance(choice, str) and choice in _CHOICES:
        out["tool_choice"] = {"type": _CHOICES[choice]}
    elif choice is not None:
        raise refusal("tool_choice", f"{choice!r} cannot be translated")
    if request.get("parallel_tool_calls") is False:
        out.setdefault("tool_choice", {"type": "auto"})["disable_parallel_tool_use"] = True


def _output(out: dict[str, Any], request: dict[str, Any]) -> None:
    config: dict[str, Any] = {}
    effort = request.get("reasoning_effort")
    if effort in ("none", "minimal"):
        out["thinking"] = {"type": "disabled"}
    elif effort:
        config["effort"] = effort
    shape = request.get("response_format") or {}
    kind = shape.get("type", "text") if isinstance(shape, dict) else None
    if kind == "json_schema":
        config["format"] = {"type": "json_schema", "schema": (shape.get("json_schema") or {}).get("schema")}
    elif kind == "json_object":
        config["format"] = {"type": "json_schema", "schema": {"type": "object"}}
    elif kind != "text":
        raise refusal("response_format", f"{kind!r} is none of text, json_object, json_schema")
    if config:
        out["output_config"] = config
