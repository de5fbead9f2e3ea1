"""What do the blocks of a messages conversation say, as chat messages?"""

import base64
import binascii
from typing import Any, Final

import msgspec

from stoker.wire.ask.habits import Engine
from stoker.wire.ask.notes import Notes, objects, refusal, text_of

_SIGNS: Final = ("error", "<tool_use_error>")  # how a failed result begins when it says so itself


def references(messages: list[dict[str, Any]]) -> set[str]:
    """Name the deferred tools that a search in the conversation has brought up."""
    found = set()
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            inner = block.get("content") if isinstance(block, dict) else None
            for part in inner if isinstance(inner, list) else ():
                if isinstance(part, dict) and part.get("type") == "tool_reference":
                    found.add(str(part.get("tool_name")))
    return found


def user(content: object, where: str, notes: Notes) -> list[dict[str, Any]]:
    """Say a user's turn: the results of calls first, each a message, then what the user says and shows."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for number, block in enumerate(objects(content, where)):
        at = f"{where}[{number}]"
        if block.get("type") == "tool_result":
            said = _result(block, at, notes)
            results.append({"role": "tool", "tool_call_id": str(block.get("tool_use_id") or ""), "content": said.text})
            parts += said.images
        else:
            parts += _part(block, at, notes)
    if not parts:
        return results or [{"role": "user", "content": ""}]
    return [*results, {"role": "user", "content": _simple(parts)}]


class _Result(msgspec.Struct):
    text: str
    images: list[dict[str, Any]]


def _result(block: dict[str, Any], where: str, notes: Notes) -> _Result:
    """Read the result of a call; images go behind it, for a tool message holds text in nearly every template."""
    content = block.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else []
    if not isinstance(content, str):
        for number, inner in enumerate(objects(content, f"{where}.content")):
            parts += _part(inner, f"{where}.content[{number}]", notes)
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    images = [part for part in parts if part["type"] != "text"]
    if images:
        text = text or "(see the image below)"
    if block.get("is_error") and not text.lstrip().lower().startswith(_SIGNS):
        text = f"Error: {text}"
    return _Result(text=text, images=images)


def _part(block: dict[str, Any], where: str, notes: Notes) -> list[dict[str, Any]]:
    """Say one block of a user's turn."""
    kind = block.get("type")
    if kind == "text":
        text = text_of(block.get("text"), f"{where}.text")
        return [{"type": "text", "text": text}] if text else []
    if kind == "image":
        return [{"type": "image_url", "image_url": {"url": _url(block.get("source"), f"{where}.source")}}]
    if kind == "document":
        return _document(block, where, notes)
    if kind == "search_result":
        inner = objects(block.get("content"), f"{where}.content")
        head = [{"type": "text", "text": f"{block.get('title') or ''} {block.get('source') or ''}".strip()}]
        return head + [part for n, one in enumerate(inner) for part in _part(one, f"{where}.content[{n}]", notes)]
    if kind == "tool_reference":
        return [{"type": "text", "text": f"Tool {block.get('tool_name')} is now available."}]
    raise refusal(where, f"a block of type {kind!r} cannot be shown to this engine")


def _url(source: object, where: str) -> str:
    if isinstance(source, dict):
        if source.get("type") == "base64":
            return f"data:{source.get('media_type')};base64,{source.get('data')}"
        if source.get("type") == "url" and isinstance(source.get("url"), str):
            return str(source["url"])
    raise refusal(where, "only base64 and url sources can be shown to this engine")


def _document(block: dict[str, Any], where: str, notes: Notes) -> list[dict[str, Any]]:
    """Say a document as text, where it is text."""
    source = block.get("source")
    if not isinstance(source, dict):
        raise refusal(f"{where}.source", "an object is expected here")
    title = [{"type": "text", "text": str(block["title"])}] if block.get("title") else []
    kind, media = source.get("type"), source.get("media_type")
    if kind == "text":
        return [*title, {"type": "text", "text": text_of(source.get("data"), f"{where}.source.data")}]
    if kind == "content":
        content = source.get("content")
        inner = [{"type": "text", "text": content}] if isinstance(content, str) else objects(content, f"{where}.source")
        return title + [part for n, one in enumerate(inner) for part in _part(one, f"{where}.source[{n}]", notes)]
    if kind == "base64" and isinstance(media, str) and media.startswith("text/"):
        try:
            text = base64.b64decode(text_of(source.get("data"), where)).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise refusal(f"{where}.source.data", "this is no text in base64") from error
        return [*title, {"type": "text", "text": text}]
    raise refusal(f"{where}.source", f"a document of type {media or kind!r} cannot be read here: send its text")


def _simple(parts: list[dict[str, Any]]) -> object:
    """Write text as a plain string: many templates take nothing else."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def assistant(content: object, where: str, notes: Notes, engine: Engine) -> list[dict[str, Any]]:
    """Say a turn of the model: text, calls, and its reasoning where the engine takes it back."""
    if isinstance(content, str):
        return [{"role": "assistant", "content": content}]
    texts, thoughts, calls = [], [], []
    for number, block in enumerate(objects(content, where)):
        at, kind = f"{where}[{number}]", block.get("type")
        if kind == "text":
            texts.append(text_of(block.get("text"), f"{at}.text"))
        elif kind == "thinking":
            thoughts.append(text_of(block.get("thinking"), f"{at}.thinking"))
        elif kind == "tool_use":
            calls.append(call(block.get("id"), block.get("name"), block.get("input"), at))
        elif isinstance(kind, str):  # redacted thinking, and what a vendor's own tools did
            notes.drop(f"content.{kind}")
        else:
            raise refusal(f"{at}.type", "every block needs a type")
    return [spoken("".join(texts), "".join(thoughts), calls, notes, engine)]


def call(id: object, name: object, value: object, where: str) -> dict[str, Any]:  # noqa: A002
    """Write a call as chat has it."""
    if not isinstance(id, str) or not isinstance(name, str):
        raise refusal(where, "a call needs an id and a name")
    arguments = msgspec.json.encode(value if value is not None else {}).decode()
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def spoken(text: str, thought: str, calls: list[dict[str, Any]], notes: Notes, engine: Engine) -> dict[str, Any]:
    """Write a turn of the model."""
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if thought:
        if engine.open:
            message["reasoning_content"] = thought
        else:
            notes.drop("content.thinking")
    if calls:
        message["tool_calls"] = calls
    return message
