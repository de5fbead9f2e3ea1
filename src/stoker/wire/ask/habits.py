"""What can an engine be told beside its dialect: how much to think, to go on with what was begun?"""

from typing import Any, Final

_SWITCHED: Final = frozenset({"vllm", "sglang", "llama.cpp", "dynamo"})  # chat_template_kwargs reach the template
_BEGIN_ANEW: Final = frozenset({"vllm", "sglang"})
_OFF: Final = frozenset({"none", "minimal"})
_EFFORTS: Final = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}


class Engine:
    """What is known of an engine's requests."""

    __slots__ = ("name", "open")

    def __init__(self, name: str) -> None:
        self.name = name
        self.open = name in _SWITCHED  # takes members beyond the dialect: templates' switches, top_k, reasoning back

    def go_on(self) -> dict[str, Any]:
        """Write that the last message is the beginning of the answer; other engines take it so anyway."""
        return {"add_generation_prompt": False, "continue_final_message": True} if self.name in _BEGIN_ANEW else {}

    def think(self, effort: object, *, on: bool | None) -> dict[str, Any]:
        """Write the switch for a chat request; ``on``: asked for, refused, or left to the model."""
        out: dict[str, Any] = {}
        if not isinstance(effort, str):
            pass
        elif effort in _OFF:
            on = False
        elif effort in _EFFORTS:
            out["reasoning_effort"] = _EFFORTS[effort]
        if self.open and on is not None:
            out["chat_template_kwargs"] = {"enable_thinking": on}
        return out
