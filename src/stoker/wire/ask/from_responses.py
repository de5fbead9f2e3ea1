"""What does a responses request say, as a chat request?"""

from typing import Any, Final

from stoker.wire.ask.functions import flat, named
from stoker.wire.ask.functions import from_responses as functions
from stoker.wire.ask.habits import Engine
from stoker.wire.ask.items import conversation
from stoker.wire.ask.notes import Notes, given, objects, refusal, text_of

_READ: Final = frozenset(
    {
        "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
        "temperature", "top_p", "top_logprobs", "text", "reasoning", "stream", "include", "store",
    }
)  # fmt: skip
_EXTRA: Final = ("seed", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "chat_template_kwargs")
_STATE: Final = {
    "previous_response_id": "no answers are kept here: send the whole conversation in input",
    "conversation": "no conversations are kept here: send the whole conversation in input",
    "prompt": "no prompts are kept here: send the text in instructions and input",
    "background": "answers are not made in the background here: leave it out and stream",
}


def chat(request: dict[str, Any], notes: Notes, engine: Engine) -> dict[str, Any]:
    """Translate."""
    for name, why in _STATE.items():
        if request.get(name):
            raise refusal(name, why)
    extra = given(request, *_EXTRA)
    for name, value in request.items():
        if name not in _READ and name not in extra and name not in _STATE and value is not None:
            notes.drop(name)
    out: dict[str, Any] = {**extra, **given(request, "stream", "temperature", "top_p")}
    instructions = text_of(request.get("instructions"), "instructions")
    first = [{"role": "system", "content": instructions}] if instructions else []
    out["messages"] = first + conversation(request.get("input"), notes, engine)
    if not out["messages"]:
        raise refusal("input", "at least one message is needed")
    if request.get("max_output_tokens") is not None:
        out["max_tokens"] = request["max_output_tokens"]
    _tools(out, request, notes)
    _output(out, request, notes, engine)
    return out


def _tools(out: dict[str, Any], request: dict[str, Any], notes: Notes) -> None:
    tools = functions(request.get("tools"), notes)
    choice = request.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        names = {_name(tool) for tool in objects(choice.get("tools"), "tool_choice.tools")}
        tools = [tool for tool in tools if tool["function"]["name"] in names]
        choice = choice.get("mode", "auto")
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise refusal("tool_choice", f"a tool of type {choice.get('type')!r} cannot be given to this engine")
        choice = named(choice, "tool_choice.name", tools, _name(choice))
    elif choice not in (None, "auto", "none", "required"):
        raise refusal("tool_choice", f"{choice!r} is none of auto, none, required")
    if not tools:
        if choice == "required":
            raise refusal("tool_choice", "no tool is left that this engine can be given")
        return
    out["tools"] = tools
    if choice is not None:
        out["tool_choice"] = choice
    if isinstance(request.get("parallel_tool_calls"), bool):
        out["parallel_tool_calls"] = request["parallel_tool_calls"]


def _name(tool: dict[str, Any]) -> str:
    return flat(str(tool.get("namespace") or ""), str(tool.get("name")))


def _output(out: dict[str, Any], request: dict[str, Any], notes: Notes, engine: Engine) -> None:
    """Say how much to think, in which shape to answer, and whether to show probabilities."""
    reasoning, text = request.get("reasoning") or {}, request.get("text") or {}
    if not isinstance(reasoning, dict) or not isinstance(text, dict):
        raise refusal("text" if isinstance(reasoning, dict) else "reasoning", "an object is expected here")
    effort = reasoning.get("effort")
    if effort and not engine.open:
        notes.drop("reasoning.effort")
    elif effort:
        out.update({**engine.think(effort, on=None), **given(out, "chat_template_kwargs")})
    if text.get("verbosity"):
        notes.drop("text.verbosity")
    shape = text.get("format") or {}
    kind = shape.get("type", "text") if isinstance(shape, dict) else None
    if kind == "json_schema":
        inside = {"name": "answer", **given(shape, "name", "schema", "strict", "description")}
        out["response_format"] = {"type": "json_schema", "json_schema": inside}
    elif kind == "json_object":
        out["response_format"] = {"type": "json_object"}
    elif kind != "text":
        raise refusal("text.format", f"{kind!r} is none of text, json_object, json_schema")
    _include(out, request, notes)


def _include(out: dict[str, Any], request: dict[str, Any], notes: Notes) -> None:
    include = request.get("include") or []
    if not isinstance(include, list):
        raise refusal("include", "a list is expected here")
    for name in include:
        if name == "message.output_text.logprobs":
            out["logprobs"] = True
        elif name != "reasoning.encrypted_content":  # nothing is encrypted here: reasoning is handed out as it is
            notes.drop(f"include.{name}")
    if request.get("top_logprobs"):
        out["logprobs"] = True
        out["top_logprobs"] = request["top_logprobs"]
