"""What does a messages request say, as a chat request?"""

from typing import Any, Final

from stoker.wire.ask import blocks
from stoker.wire.ask.functions import from_messages as functions
from stoker.wire.ask.functions import named
from stoker.wire.ask.habits import Engine
from stoker.wire.ask.notes import Notes, given, objects, refusal, text_of

_READ: Final = frozenset(
    {
        "model", "messages", "system", "max_tokens", "tools", "tool_choice", "thinking", "output_config",
        "output_format", "stop_sequences", "stream", "temperature", "top_p", "top_k",
    }
)  # fmt: skip
# Engines take these beside the dialect, and clients that send them mean the engine.
EXTRA: Final = ("seed", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "chat_template_kwargs")
_ELSEWHERE: Final = ("container", "mcp_servers")  # what would run at the vendor: an answer without it is another one


def chat(request: dict[str, Any], notes: Notes, engine: Engine) -> dict[str, Any]:
    """Translate."""
    for name in _ELSEWHERE:
        if request.get(name):
            raise refusal(name, "a self-hosted engine has none")
    extra = given(request, *EXTRA)
    for name, value in request.items():
        if name not in _READ and name not in extra and value is not None:
            notes.drop(name)
    messages = objects(request.get("messages"), "messages")
    if not messages:
        raise refusal("messages", "at least one message is needed")
    out: dict[str, Any] = {**extra, **given(request, "stream", "temperature", "top_p")}
    out["messages"] = [*_system(request.get("system"), "system"), *_conversation(messages, notes, engine)]
    if out["messages"][-1]["role"] == "assistant":
        out.update(engine.go_on())
    if request.get("max_tokens") is not None:
        out["max_tokens"] = request["max_tokens"]
    if request.get("stop_sequences"):
        out["stop"] = request["stop_sequences"]
    if request.get("top_k") is not None:
        if engine.open:
            out["top_k"] = request["top_k"]
        else:
            notes.drop("top_k")
    _tools(out, request, messages, notes)
    _output(out, request, notes, engine)
    return out


def _system(value: object, where: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, str):
        text = value
    else:
        texts = [text_of(block.get("text"), f"{where}[{n}].text") for n, block in enumerate(objects(value, where))]
        text = "\n".join(piece for piece in texts if piece)
    return [{"role": "system", "content": text}] if text else []


def _conversation(messages: list[dict[str, Any]], notes: Notes, engine: Engine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role, content = message.get("role"), message.get("content")
        if role == "system":
            found += _system(content, f"{where}.content")
        elif role == "user":
            found += blocks.user(content, f"{where}.content", notes)
        elif role == "assistant":
            found += blocks.assistant(content, f"{where}.content", notes, engine)
        else:
            raise refusal(f"{where}.role", f"{role!r} is none of user, assistant, system")
    return found


def _tools(out: dict[str, Any], request: dict[str, Any], messages: list[dict[str, Any]], notes: Notes) -> None:
    tools = functions(request.get("tools"), notes, blocks.references(messages))
    choice = request.get("tool_choice") or {}
    if not isinstance(choice, dict):
        raise refusal("tool_choice", "an object is expected here")
    kind = choice.get("type")
    if kind == "tool":
        out["tool_choice"] = named(choice.get("name"), "tool_choice.name", tools, choice.get("name"))
    if not tools:
        if kind == "any":
            raise refusal("tool_choice", "no tool is left that this engine can be given")
        return
    out["tools"] = tools
    if kind in ("auto", "any", "none"):
        out["tool_choice"] = {"any": "required"}.get(kind, kind)
    elif kind not in (None, "tool"):
        raise refusal("tool_choice.type", f"{kind!r} is none of auto, any, tool, none")
    if choice.get("disable_parallel_tool_use"):
        out["parallel_tool_calls"] = False


def _output(out: dict[str, Any], request: dict[str, Any], notes: Notes, engine: Engine) -> None:
    """Say how much to think, and in which shape to answer."""
    config = request.get("output_config") or {}
    thinking = request.get("thinking") or {}
    if not isinstance(config, dict) or not isinstance(thinking, dict):
        raise refusal("output_config" if isinstance(thinking, dict) else "thinking", "an object is expected here")
    on = {"enabled": True, "disabled": False}.get(thinking.get("type", ""))
    switch = engine.think(config.get("effort") if engine.open else None, on=on)
    if "chat_template_kwargs" in switch and "chat_template_kwargs" in out:
        switch["chat_template_kwargs"] |= out["chat_template_kwargs"]
    out.update(switch)
    if not engine.open and (config.get("effort") or on is not None):
        notes.drop("thinking")
    elif thinking.get("budget_tokens") is not None:
        notes.drop("thinking.budget_tokens")
    shape = config.get("format") or request.get("output_format")
    if shape is not None:
        if not isinstance(shape, dict) or shape.get("type") != "json_schema":
            raise refusal("output_config.format", "only json_schema is known")
        inside = {"name": shape.get("name") or "answer", "schema": shape.get("schema"), "strict": True}
        out["response_format"] = {"type": "json_schema", "json_schema": inside}
