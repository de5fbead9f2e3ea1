"""What the probes of all dialects ask for."""

from typing import Final

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.checks.conformance.probe import at

HELLO: Final = "Say hello."
CITY: Final = "What is the weather in Oslo? Use the tool get_weather."
WEATHER: Final = "get_weather"
SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FIX_TOOLS: Final = "the engine's tool parser: spec.engine.toolParser; tool deltas are repaired by the gateway only"


def _json(text: str) -> Json:
    try:
        return msgspec.json.decode(text)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def fits(text: str) -> bool:
    """Tell whether a text is JSON of the schema."""
    return isinstance(at(_json(text), "city"), str)


def arguments_problem(text: str) -> str:
    """Complain about arguments of a call that no client can read."""
    return "" if isinstance(_json(text), dict) else f"the arguments of a call are no JSON object: {text[:80]!r}"
