"""A value that fits a JSON schema: arguments of a tool, an answer of a given structure."""

from typing import Final

from stoker.base.json import Json, JsonObject

_SAMPLES: Final[dict[str, Json]] = {"integer": 1, "number": 1.5, "boolean": True, "null": None}
_DEPTH: Final = 12  # schemas may refer to themselves


def sample(schema: Json, *, name: str = "text") -> Json:
    """Make the smallest value that a schema allows: required members only, texts say the name of their member."""
    root = schema if isinstance(schema, dict) else {}
    return _sample(root, name, root, 0)


def _sample(schema: Json, name: str, root: JsonObject, depth: int) -> Json:
    if not isinstance(schema, dict) or depth > _DEPTH:
        return name
    if isinstance(schema.get("$ref"), str):
        return _sample(_target(str(schema["$ref"]), root), name, root, depth + 1)
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return options[0]
    for either in ("anyOf", "oneOf", "allOf"):
        found = schema.get(either)
        if isinstance(found, list) and found:
            return _sample(found[0], name, root, depth + 1)
    return _typed(schema, name, root, depth)


def _typed(schema: JsonObject, name: str, root: JsonObject, depth: int) -> Json:
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or "properties" in schema:
        properties, required = schema.get("properties"), schema.get("required")
        known = properties if isinstance(properties, dict) else {}
        wanted = [str(n) for n in required] if isinstance(required, list) else []
        return {n: _sample(known.get(n), n, root, depth + 1) for n in wanted}
    if kind == "array":
        least = schema.get("minItems")
        count = least if isinstance(least, int) else 0
        return [_sample(schema.get("items"), name, root, depth + 1)] * count
    return _SAMPLES.get(kind, name) if isinstance(kind, str) else name


def _target(reference: str, root: JsonObject) -> Json:
    found: Json = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    return found
