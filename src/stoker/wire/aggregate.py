"""How does a stream become the one answer that a client without streaming expects?"""

from typing import Any, Final

import msgspec

_OBJECTS: Final = {"chat.completion.chunk": "chat.completion"}
_JOINED: Final = frozenset({"content", "reasoning_content", "reasoning", "refusal", "arguments"})


class Aggregate:
    """Puts chunks together: text, reasoning, tool calls, log-probabilities, usage, and fields unknown here."""

    __slots__ = ("_choices", "_top")

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def add(self, payload: bytes) -> None:
        """Add the JSON of one event."""
        chunk = msgspec.json.decode(payload)
        if not isinstance(chunk, dict):
            return
        for name, value in chunk.items():
            if name != "choices" and (value is not None or name not in self._top):
                self._top[name] = value
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict):
                self._add_choice(choice)

    def _add_choice(self, piece: dict[str, Any]) -> None:
        index = piece.get("index") or 0
        choice = self._choices.setdefault(index, {"index": index})
        for name, value in piece.items():
            if name == "delta":
                _add_delta(choice.setdefault("message", {"role": "assistant", "content": None}), value or {})
            elif name == "text":
                choice["text"] = choice.get("text", "") + (value or "")
            elif name == "logprobs":
                choice["logprobs"] = _add_logprobs(choice.get("logprobs"), value)
            elif name == "token_ids" and isinstance(value, list):
                choice[name] = (choice.get(name) or []) + value
            elif value is not None or name not in choice:
                choice[name] = value

    def count(self, *, prompt: int, output: int) -> None:
        """Write the usage of the whole answer over what was reported for its last choice alone."""
        self._top["usage"] = {
            **(self._top.get("usage") or {}),
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
        }

    def body(self) -> bytes:
        """Write the answer."""
        kind = self._top.get("object", "")
        answer: dict[str, Any] = {**self._top, "object": _OBJECTS.get(kind, kind)}
        answer["choices"] = [self._choices[index] for index in sorted(self._choices)]
        for choice in answer["choices"]:
            choice.setdefault("logprobs", None)
            calls = choice.get("message", {}).get("tool_calls")
            if isinstance(calls, dict):
                choice["message"]["tool_calls"] = [calls[index] for index in sorted(calls)]
        return msgspec.json.encode(answer)


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if value is None and name in message:
            continue
        if name == "tool_calls":
            for call in value or ():
                _add_call(message.setdefault("tool_calls", {}), call)
        elif name in _JOINED and isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif name == "function_call" and isinstance(value, dict):
            _add_function(message.setdefault("function_call", {}), value)
        elif isinstance(value, list) and isinstance(message.get(name), list):
            message[name] = message[name] + value
        else:
            message[name] = value


def _add_call(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    call = calls.setdefault(piece.get("index") or 0, {"id": None, "type": "function", "function": {}})
    for name, value in piece.items():
        if name == "function" and isinstance(value, dict):
            _add_function(call["function"], value)
        elif name != "index" and value is not None:
            call[name] = value


def _add_function(function: dict[str, Any], piece: dict[str, Any]) -> None:
    if piece.get("name") is not None:
        function["name"] = piece["name"]
    function["arguments"] = function.get("arguments", "") + (piece.get("arguments") or "")


def _add_logprobs(have: dict[str, Any] | None, piece: dict[str, Any] | None) -> dict[str, Any] | None:
    if piece is None:
        return have
    merged = dict(have or {})
    for name, value in piece.items():
        if isinstance(value, list) and isinstance(merged.get(name), list):
            merged[name] = merged[name] + value
        elif value is not None or name not in merged:
            merged[name] = value
    return merged
