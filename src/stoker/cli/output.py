"""How answers look to a person: tables for the eye, YAML and JSON for programs."""

import sys
from collections.abc import Iterable, Sequence

import msgspec
import yaml
from rich.console import Console
from rich.table import Table

from stoker.base import clock
from stoker.base.json import Json, JsonObject

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a plain table that can be read by eye and cut by column."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        drawn.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in rows:
        drawn.add_row(*(_plain(cell) for cell in row))
    width = None if sys.stdout.isatty() else 400
    Console(highlight=False, width=width).print(drawn)


def data(value: Json, form: str) -> None:
    """Print a value as YAML or JSON."""
    if form == "json":
        print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    else:
        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def get(value: Json, *path: str) -> Json:
    """Walk into nested objects; None where there is no such thing."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: Json, *path: str) -> str:
    """Walk into nested objects and write what is there; the empty string where there is nothing."""
    found = get(value, *path)
    return "" if found is None else str(found)


def items(value: Json, *path: str) -> list[JsonObject]:
    """Walk into nested objects and return the list of objects there."""
    found = get(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def condition(resource: JsonObject, kind: str) -> JsonObject:
    """Find one condition of a resource, or an empty one."""
    return next((c for c in items(resource, "status", "conditions") if c.get("type") == kind), {})


def age(at: Json) -> str:
    """Write how long ago an epoch time was, as kubectl does: 45s, 12m, 3h, 9d."""
    if not isinstance(at, int | float) or not at:
        return ""
    span = max(0, int(clock.now() - at))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if span >= size:
            return f"{span // size}{unit}"
    return f"{span}s"


def _plain(cell: str) -> str:
    return cell.replace("[", r"\[")
