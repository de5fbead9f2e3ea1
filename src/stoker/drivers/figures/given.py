"""What a user brings: traces, prices of cards, prices of hosted services."""

import csv
from datetime import date
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from stoker.base.errors import Fault, Invalid
from stoker.base.json import JsonObject
from stoker.predict.batching.loop import Arrival
from stoker.predict.cost import Hosted
from stoker.predict.traffic import agents, trace


class CardPrices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a card and hour, by the card's name, and the day on which they held."""

    date: date
    cards: dict[str, float]


class HostedPrice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens."""

    name: str
    input: float
    output: float
    cached: float | None = None


_Kind = TypeVar("_Kind", CardPrices, list[HostedPrice])


def traffic(path: Path) -> list[Arrival]:
    """Read a trace: CSV, JSON lines, or recorded agents with a conversation an object."""
    text = _text(path)
    if path.suffix == ".csv":
        reader = csv.DictReader(text.splitlines())
        numbered = [(reader.line_num, dict(row)) for row in reader]
        return trace.read([row for _, row in numbered], file=str(path), lines=[line for line, _ in numbered])
    if path.suffix == ".json":
        return trace.read(agents.rows(_line(text, path, 0), file=str(path)), file=str(path))
    numbers = [number for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    found = [_line(line, path, number) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if found and agents.is_one(found[0]):
        each = [agents.rows(row, file=str(path), line=line) for line, row in zip(numbers, found, strict=True)]
        return trace.read([row for rows in each for row in rows], file=str(path))
    return trace.read(found, file=str(path), lines=numbers)


def card_prices(path: Path) -> CardPrices:
    """Read what cards cost: ``date: 2026-12-01`` and ``cards: {h100: 2.5}``, as YAML or JSON."""
    found = _typed(path, CardPrices)
    wrong = [f"{name}: {price}" for name, price in found.cards.items() if not 0 < price < 1e4]
    if wrong:
        raise Invalid(Fault(message=f"no price of a card and hour: {', '.join(wrong)}", file=str(path)))
    return found


def hosted(text: str) -> list[Hosted]:
    """Read ``[NAME=]INPUT,CACHED,OUTPUT`` in dollars per million tokens, or a file with a list of such."""
    path = Path(text)
    if path.suffix in (".yaml", ".yml", ".json"):
        listed = _typed(path, list[HostedPrice])
        return [Hosted(name=h.name, input_usd=h.input, cached_usd=h.cached, output_usd=h.output) for h in listed]
    name, _, figures = text.rpartition("=")
    try:
        prompt, cached, output = (float(part) for part in figures.split(","))
    except ValueError:
        hint = "INPUT,CACHED,OUTPUT in dollars per million tokens, such as 3,0.3,15, or a file"
        raise Invalid(Fault(message=f"'{text}' is no price", field="--hosted", hint=hint)) from None
    if min(prompt, cached, output) < 0:
        raise Invalid(Fault(message=f"'{text}': a price cannot be negative", field="--hosted"))
    return [Hosted(name=name or "hosted", input_usd=prompt, cached_usd=cached, output_usd=output)]


def _typed(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(yaml.safe_load(_text(path)), type=kind, strict=False)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=str(path))) from error


def _line(line: str, path: Path, number: int) -> JsonObject:
    try:
        return msgspec.json.decode(line, type=JsonObject)
    except msgspec.MsgspecError as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=str(path), line=number)) from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid(Fault(message=why, file=str(path))) from error
