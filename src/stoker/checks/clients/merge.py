"""How do our settings get into a file that is somebody else's? Everything that was there stays; ours win. Pure.

What cannot be merged safely is refused: a JSON file with comments would lose them, a TOML file is only written when
reading it back gives exactly what was there plus what is ours.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject
from stoker.checks.clients.base import Setup


def merged(setup: Setup, before: str, *, file: str) -> str:
    """Give the new text of a file. Raises Invalid when the old one cannot be kept."""
    match setup.form:
        case "json":
            return _json(setup.settings, before, file)
        case "toml":
            return _toml(setup.settings, before, file)
        case "env":
            return _env(setup.settings, before)


def deep(before: JsonObject, ours: Mapping[str, Json]) -> JsonObject:
    """Put our members into an object, and into the objects in it."""
    result = dict(before)
    for name, value in ours.items():
        there = result.get(name)
        result[name] = deep(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return result


def _json(ours: JsonObject, before: str, file: str) -> str:
    try:
        there = json.loads(before) if before.strip() else {}
    except ValueError as error:
        line = getattr(error, "lineno", 0)
        message = "it is no plain JSON (comments?), so nothing was written: add the settings by hand"
        raise Invalid(Fault(message=message, file=file, line=line)) from error
    if not isinstance(there, dict):
        raise Invalid(Fault(message="it holds no JSON object, so nothing was written", file=file))
    return json.dumps(deep(there, ours), indent=2, ensure_ascii=False) + "\n"


def _toml(ours: JsonObject, before: str, file: str) -> str:
    try:
        there = tomllib.loads(before)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(Fault(message=f"it is no TOML ({error}), so nothing was written", file=file)) from error
    top = {name: value for name, value in ours.items() if not isinstance(value, dict)}
    head, tables = _split(before)
    for name, value in top.items():
        head = _set(head, name, value)
    for path, values in _tables(ours):
        tables = _replace(tables, path, values)
    text = head.rstrip("\n") + "\n" + ("\n" + tables.lstrip("\n") if tables.strip() else "")
    if _read_back(text) != deep(there, ours):
        message = "its shape does not allow a safe change, so nothing was written: add the settings by hand"
        raise Invalid(Fault(message=message, file=file))
    return text


def _read_back(text: str) -> JsonObject | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _split(text: str) -> tuple[str, str]:
    """Part the top of a TOML file from its tables."""
    first = re.search(r"^\s*\[", text, re.MULTILINE)
    return (text, "") if first is None else (text[: first.start()], text[first.start() :])


def _set(head: str, name: str, value: Json) -> str:
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    new, count = re.subn(rf"^{re.escape(name)}\s*=.*$", _literally(line), head, count=1, flags=re.MULTILINE)
    return new if count else f"{head.rstrip(chr(10))}\n{line}\n".lstrip("\n")


def _literally(line: str) -> Callable[[re.Match[str]], str]:
    """Put a line in as it is: in a plain replacement its backslashes would mean something."""

    def replacement(_: re.Match[str]) -> str:
        return line

    return replacement


def _tables(ours: JsonObject, path: str = "") -> list[tuple[str, JsonObject]]:
    found: list[tuple[str, JsonObject]] = []
    for name, value in ours.items():
        if isinstance(value, dict):
            inner = f"{path}.{name}" if path else name
            plain: JsonObject = {n: v for n, v in value.items() if not isinstance(v, dict)}
            found += [(inner, plain)] if plain else []
            found += _tables(value, inner)
    return found


def _replace(tables: str, path: str, values: JsonObject) -> str:
    """Set members of one table, or add the table behind the others."""
    found = re.search(rf"^\[{re.escape(path)}\][^\n]*\n(.*?)(?=^\s*\[|\Z)", tables, re.MULTILINE | re.DOTALL)
    body = found[1] if found else ""
    for name, value in values.items():
        body = _set(body, name, value)
    block = f"[{path}]\n{body.strip(chr(10))}\n"
    if found is None:
        return f"{tables.rstrip(chr(10))}\n\n{block}".lstrip("\n")
    rest = tables[found.end() :].lstrip("\n")
    return tables[: found.start()] + block + (f"\n{rest}" if rest else "")


def _env(ours: JsonObject, before: str) -> str:
    text = before
    for name, value in ours.items():
        line = f"{name}={value}"
        text, count = re.subn(rf"^(export\s+)?{name}=.*$", _literally(line), text, flags=re.MULTILINE)
        text = text if count else f"{text.rstrip(chr(10))}\n{line}\n".lstrip("\n")
    return text
