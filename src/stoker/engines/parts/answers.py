"""Read what engines answer as JSON, without trusting its shape."""

from collections.abc import Mapping

from stoker.base.json import Json, JsonObject


def obj(value: Json) -> JsonObject:
    """A mapping, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Json) -> list[JsonObject]:
    """The mappings in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: Json) -> int | None:
    """A positive whole number, also one written as text; None otherwise."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def truth(value: Json) -> bool | None:
    """True or false, also as Python writes them; None otherwise."""
    if isinstance(value, bool):
        return value
    return {"True": True, "False": False}.get(value) if isinstance(value, str) else None


def text(value: Json) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def model_names(answers: Mapping[str, Json], path: str = "/v1/models") -> tuple[str, ...]:
    """The models that an OpenAI-compatible server lists."""
    return tuple(str(line["id"]) for line in objects(obj(answers.get(path)).get("data")) if line.get("id"))


def model_context(answers: Mapping[str, Json], path: str = "/v1/models") -> int | None:
    """The context of the first model, as vLLM and SGLang list it."""
    listed = objects(obj(answers.get(path)).get("data"))
    return number(listed[0].get("max_model_len")) if listed else None
