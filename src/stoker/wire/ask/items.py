"""What do the items of a responses conversation say, as chat messages?"""

from typing import Any, Final

import msgspec

from stoker.wire.ask.blocks import spoken
from stoker.wire.ask.functions import flat
from stoker.wire.ask.habits import Engine
from stoker.wire.ask.notes import Notes, objects, refusal, text_of

_TEXTS: Final = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_VENDORS: Final = frozenset(
    {
        "web_search_call", "file_search_call", "computer_call", "computer_call_output", "code_interpreter_call",
        "image_generation_call", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
        "tool_search_call", "tool_search_output", "compaction",
    }
)  # fmt: skip


class _Turn:
    """A turn of the model that is being put together from its items."""

    __slots__ = ("calls", "texts", "thoughts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def close(self, notes: Notes, engine: Engine) -> list[dict[str, Any]]:
        """Write the turn, if there is anything in it, and begin a new one."""
        found = []
        if self.texts or self.calls:
            found.append(spoken("".join(self.texts), "".join(self.thoughts), self.calls, notes, engine))
        elif self.thoughts:
            notes.drop("input.reasoning")  # it led to nothing
        self.texts, self.thoughts, self.calls = [], [], []
        return found


def conversation(value: object, notes: Notes, engine: Engine) -> list[dict[str, Any]]:
    """Translate the input: reasoning, text and calls that follow each other are one turn of the model."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    found: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []  # of results: shown to the model behind all of them
    turn = _Turn()
    for number, item in enumerate(objects(value, "input")):
        where = f"input[{number}]"
        kind = text_of(item.get("type") or "message", f"{where}.type")
        if _models(item, kind, where, turn, notes):
            continue
        if kind not in ("function_call_output", "custom_tool_call_output", "message"):
            raise refusal(f"{where}.type", f"an item of type {kind!r} cannot be translated")
        found += turn.close(notes, engine)
        if kind == "message":
            found += _shown(images)
            found.append({"role": _role(item, where), "content": content(item.get("content"), f"{where}.content")})
        else:
            found.append(_result(item, where, images))
    return found + turn.close(notes, engine) + _shown(images)


def _models(item: dict[str, Any], kind: str, where: str, turn: _Turn, notes: Notes) -> bool:
    """Take an item that is part of the model's turn; False: it is another's."""
    if kind == "message" and item.get("role") == "assistant":
        if turn.calls:  # text behind calls whose results are still to come belongs to the same turn
            turn.texts.append("\n" if turn.texts else "")
        turn.texts.append(plain(item.get("content"), f"{where}.content"))
    elif kind == "reasoning":
        thought = plain(item.get("content") or item.get("summary"), where)
        if thought:
            turn.thoughts.append(thought)
        elif item.get("encrypted_content"):
            notes.drop("input.encrypted_content")
    elif kind == "function_call":
        name = flat(str(item.get("namespace") or ""), text_of(item.get("name"), f"{where}.name"))
        turn.calls.append(_call(item, name, text_of(item.get("arguments"), f"{where}.arguments") or "{}"))
    elif kind == "custom_tool_call":
        given = msgspec.json.encode({"input": item.get("input") or ""}).decode()
        turn.calls.append(_call(item, text_of(item.get("name"), f"{where}.name"), given))
    elif kind in _VENDORS:
        notes.drop(f"input.{kind}")
    else:
        return False
    return True


def _call(item: dict[str, Any], name: str, arguments: str) -> dict[str, Any]:
    id_ = item.get("call_id") or item.get("id") or ""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def _role(item: dict[str, Any], where: str) -> str:
    role = item.get("role")
    if role == "developer":
        return "system"  # templates of open models know no developer
    if role not in ("user", "system"):
        raise refusal(f"{where}.role", f"{role!r} is none of user, assistant, system, developer")
    return str(role)


def _result(item: dict[str, Any], where: str, images: list[dict[str, Any]]) -> dict[str, Any]:
    output = item.get("output")
    said = output if isinstance(output, str) else content(output, f"{where}.output")
    if isinstance(said, list):
        images += [part for part in said if part["type"] != "text"]
        said = "\n".join(part["text"] for part in said if part["type"] == "text") or "(see the image below)"
    return {"role": "tool", "tool_call_id": str(item.get("call_id") or ""), "content": said}


def _shown(images: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shown = [{"role": "user", "content": list(images)}] if images else []
    images.clear()
    return shown


def content(value: object, where: str) -> str | list[dict[str, Any]]:
    """Say the content of a message: a plain string where it is only text."""
    if isinstance(value, str):
        return value
    parts: list[dict[str, Any]] = []
    for number, part in enumerate(objects(value, where)):
        at, kind = f"{where}[{number}]", part.get("type")
        if kind in _TEXTS:
            text = text_of(part.get("text"), f"{at}.text")
            parts += [{"type": "text", "text": text}] if text else []
        elif kind == "refusal":
            parts.append({"type": "text", "text": text_of(part.get("refusal"), f"{at}.refusal")})
        elif kind == "input_image" and isinstance(part.get("image_url"), str):
            image = {"url": part["image_url"]}
            if part.get("detail"):
                image["detail"] = part["detail"]
            parts.append({"type": "image_url", "image_url": image})
        else:
            raise refusal(at, f"a part of type {kind!r} cannot be shown to this engine")
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def plain(value: object, where: str) -> str:
    """Give the text of some parts."""
    if isinstance(value, str):
        return value
    texts = (part.get("text") or part.get("refusal") for part in objects(value, where))
    return "".join(text for text in texts if isinstance(text, str))
