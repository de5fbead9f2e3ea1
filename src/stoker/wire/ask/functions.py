"""How are tools said in each dialect? What only a vendor's servers can run is left out and named."""

from typing import Any, Final

import msgspec

from stoker.wire.ask.notes import Notes, objects, refusal

SEPARATOR: Final = "__"  # between a namespace and a name: engines know no namespaces


class _Function(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    type: str = ""
    name: str = ""
    tools: list[_Function] | None = None


def spaces(tools: bytes) -> dict[str, tuple[str, str]]:
    """Say which flat name stands for which namespace and name."""
    try:
        found = msgspec.json.decode(tools, type=list[_Tool] | None) or ()
    except msgspec.DecodeError:  # what is no list of tools was refused, or goes on to an engine that will
        return {}
    return {
        flat(tool.name, inner.name): (tool.name, inner.name)
        for tool in found
        if tool.type == "namespace"
        for inner in tool.tools or ()
    }


def flat(space: str, name: str) -> str:
    """Name a function of a namespace as engines see it."""
    return f"{space}{SEPARATOR}{name}" if space else name


def function(name: str, description: object, parameters: object, strict: object = None) -> dict[str, Any]:
    """Write a function as chat has it."""
    inside: dict[str, Any] = {"name": name}
    if description:
        inside["description"] = description
    inside["parameters"] = parameters if isinstance(parameters, dict) else {"type": "object", "properties": {}}
    if isinstance(strict, bool):
        inside["strict"] = strict
    return {"type": "function", "function": inside}


def from_messages(tools: object, notes: Notes, referenced: set[str]) -> list[dict[str, Any]]:
    """Take the tools of a messages request; a deferred one counts once the conversation refers to it."""
    found = []
    for number, tool in enumerate(objects(tools, "tools")):
        name = tool.get("name")
        if not isinstance(name, str) or not name:
            raise refusal(f"tools[{number}].name", "every tool needs a name")
        if tool.get("type") not in (None, "custom") or (tool.get("defer_loading") and name not in referenced):
            notes.drop(f"tools.{name}")
            continue
        found.append(function(name, tool.get("description"), tool.get("input_schema"), tool.get("strict")))
    return found


def from_responses(tools: object, notes: Notes) -> list[dict[str, Any]]:
    """Take the tools of a responses request; those in a namespace get flat names."""
    found = []
    for number, tool in enumerate(objects(tools, "tools")):
        kind, space = tool.get("type"), ""
        inner = [tool] if kind == "function" else []
        if kind == "namespace":
            space = str(tool.get("name") or "")
            inner = objects(tool.get("tools"), f"tools[{number}].tools")
        elif kind != "function":
            notes.drop(f"tools.{tool.get('name') or kind}")
        for one in inner:
            if one.get("type", "function") != "function":
                notes.drop(f"tools.{flat(space, str(one.get('name')))}")
                continue
            name = one.get("name")
            if not isinstance(name, str) or not name:
                raise refusal(f"tools[{number}].name", "every function needs a name")
            found.append(function(flat(space, name), one.get("description"), one.get("parameters"), one.get("strict")))
    return found


def of_chat(tools: object) -> list[dict[str, Any]]:
    """Take the functions of a chat request."""
    found = []
    for number, tool in enumerate(objects(tools, "tools")):
        inside = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(inside, dict):
            raise refusal(f"tools[{number}]", f"a tool of type {tool.get('type')!r} cannot be translated")
        if not isinstance(inside.get("name"), str):
            raise refusal(f"tools[{number}].function.name", "every function needs a name")
        found.append(inside)
    return found


def named(choice: object, where: str, known: list[dict[str, Any]], name: object) -> dict[str, Any]:
    """Write the choice of one function; it must be among the tools that are left."""
    if not isinstance(name, str) or all(tool["function"]["name"] != name for tool in known):
        raise refusal(where, f"{choice!r} names no tool that this engine can be given")
    return {"type": "function", "function": {"name": name}}
