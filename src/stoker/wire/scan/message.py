"""How do messages events become one message? Members that are unknown here stay."""

from typing import Any, Final

import msgspec

_JOINED: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class Message:
    """Puts events together."""

    __slots__ = ("_inputs", "_message")

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._inputs: dict[int, list[str]] = {}

    def add(self, payload: bytes) -> None:
        """Add the JSON of one event."""
        event: dict[str, Any] = msgspec.json.decode(payload)
        kind = event.get("type")
        if kind == "message_start":
            self._message = dict(event["message"])
            self._message["content"] = list(self._message.get("content") or [])
        elif kind == "content_block_start":
            self._message.setdefault("content", []).append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            self._delta(event.get("index", 0), event["delta"])
        elif kind == "message_delta":
            self._message.update(event.get("delta") or {})
            usage = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **usage}

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        block = self._message["content"][index]
        kind = delta.get("type", "")
        if kind in _JOINED:
            name = _JOINED[kind]
            block[name] = (block.get(name) or "") + delta.get(name, "")
        elif kind == "input_json_delta":
            self._inputs.setdefault(index, []).append(delta.get("partial_json", ""))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]

    def body(self) -> bytes:
        """Write the message."""
        for index, pieces in self._inputs.items():
            text = "".join(pieces)
            if text:
                self._message["content"][index]["input"] = _object(text)
        return msgspec.json.encode(self._message)


def _object(text: str) -> object:
    """Read the input of a call; what is no JSON goes on as text, for the client to refuse."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {"unparsed_arguments": text}
