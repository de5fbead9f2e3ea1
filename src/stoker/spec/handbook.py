"""The reference page of all kinds, written from the models themselves."""

from collections.abc import Iterator

from stoker.base.json import Json, JsonObject
from stoker.spec.kinds import KINDS, Kind, schema


def page() -> str:
    """Write the page."""
    head = [
        "# Resources",
        "",
        "Written by `stoker.spec.handbook`; do not edit. `stoker schema KIND` prints the JSON Schema.",
        "A value with a unit is a text such as `30s` or `16Gi`, or a number in a field that carries its unit in",
        "its name.",
        "",
    ]
    return "\n".join([*head, *(line for kind in KINDS.values() for line in _kind(kind))])


def _kind(kind: Kind) -> Iterator[str]:
    whole = schema(kind.name)
    properties = whole["properties"]
    spec = properties["spec"] if isinstance(properties, dict) else None
    yield f"## {kind.name}"
    yield ""
    yield str(kind.spec.__doc__)
    yield ""
    scope = "In a namespace" if kind.namespaced else "Cluster-wide"
    yield f"{scope}; also `{kind.plural}`, `{kind.short}`." + (" Composed: nobody writes it." if kind.composed else "")
    if kind.later:
        yield f"Accepted, but nothing acts on it yet: {', '.join(f'`{path}`' for path in kind.later)}."
    yield ""
    if not kind.composed and isinstance(spec, dict):
        yield "| field | type | default |"
        yield "|---|---|---|"
        definitions = whole["$defs"]
        yield from _rows(spec, definitions if isinstance(definitions, dict) else {}, path="spec", open_=())
        yield ""


def _rows(owner: JsonObject, definitions: JsonObject, *, path: str, open_: tuple[str, ...]) -> Iterator[str]:
    properties, required = owner.get("properties"), owner.get("required")
    for name, field in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(field, dict):
            continue
        here = f"{path}.{name}"
        needed = isinstance(required, list) and name in required
        default = "required" if needed else _default(field.get("default"))
        yield f"| `{here}` | {_type(field)} | {default} |"
        for reference, suffix in _references(field):
            inner = definitions.get(reference)
            if isinstance(inner, dict) and reference not in open_:
                yield from _rows(inner, definitions, path=here + suffix, open_=(*open_, reference))


def _default(value: Json) -> str:
    if value in (None, {}, [], "") or isinstance(value, dict):
        return ""
    values = value if isinstance(value, list) else [value]
    return ", ".join(f"`{str(one).lower() if isinstance(one, bool) else one}`" for one in values)


def _references(field: JsonObject) -> Iterator[tuple[str, str]]:
    """Find the models that a field leads to, and how a path goes on into them."""
    for part, suffix in ((field, ""), (field.get("items"), "[]"), (field.get("additionalProperties"), ".NAME")):
        if isinstance(part, dict) and "$ref" in part:
            yield str(part["$ref"]).rpartition("/")[2], suffix
    options = field.get("anyOf")
    for option in options if isinstance(options, list) else ():
        if isinstance(option, dict):
            yield from _references(option)


def _type(field: JsonObject) -> str:
    if "$ref" in field:
        return "block"
    options = field.get("anyOf")
    if isinstance(options, list):
        return " or ".join(dict.fromkeys(_type(o) for o in options if isinstance(o, dict) and o.get("type") != "null"))
    choices = field.get("enum") or ([field["const"]] if "const" in field else None)
    if isinstance(choices, list):
        return ", ".join(f"`{choice}`" for choice in choices)
    if field.get("type") == "array":
        items = field.get("items")
        return f"list of {_type(items)}" if isinstance(items, dict) else "list"
    if field.get("type") == "object":
        return "mapping"
    examples = field.get("examples")
    shown = f", as `{examples[0]}`" if isinstance(examples, list) and examples else ""
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(
        str(field.get("type")), "number"
    ) + (shown + _bounds(field))


def _bounds(field: JsonObject) -> str:
    words = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    return "".join(f" {sign} {field[key]}" for key, sign in words.items() if key in field and field[key] != 2**53)
