"""One case: what is asked, and what is right. Cases are data: ``bench/suite/cases.json``."""

from typing import Literal

import msgspec

from stoker.base.json import Json, JsonObject

Kind = Literal[
    "echo", "stop", "limit", "tool", "tool_multiple", "tool_parallel", "tool_none", "json", "needle", "instruct",
    "arithmetic",
]  # fmt: skip
Rule = Literal["", "lower", "lines", "without", "begins", "words", "ends"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call, with its arguments read."""

    name: str
    arguments: JsonObject


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case. What is right stands in the ``target`` of its kind."""

    id: str
    kind: Kind
    prompt: str
    max_tokens: int
    stop: tuple[str, ...] = ()
    tools: tuple[JsonObject, ...] = ()
    schema: JsonObject | None = None
    filler_words: int = 0  # of a text around what is hidden
    hidden: str = ""
    target: str = ""
    target_finish: str = ""
    target_tokens: int = 0
    target_calls: tuple[Call, ...] = ()
    target_json: Json = None
    rule: Rule = ""
    argument: int | str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""
    output_tokens: int = 0


def parse(data: bytes) -> tuple[Case, ...]:
    """Read cases. Raises msgspec's error for a file that is none."""
    return msgspec.json.decode(data, type=tuple[Case, ...])
