"""Graders: right or wrong, by rule. An answer that never came is neither; whoever asked must leave it out."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from stoker.base.json import Json
from stoker.decide.score.case import Call, Case, Reply

_NUMBER: Final = re.compile(r"-?\d[\d,]*")
_FENCE: Final = re.compile(r"^```(?:json)?\s*(.*?)\s*```$", re.DOTALL)


def right(case: Case, reply: Reply) -> bool:
    """Whether an answer is right."""
    return _GRADERS[case.kind](case, reply)


def _exact(case: Case, reply: Reply) -> bool:
    return reply.text.strip() == case.target


def _limit(case: Case, reply: Reply) -> bool:
    """Cut where it was told to be, and said so. Some engines count the last token apart."""
    return reply.finish == case.target_finish and abs(reply.output_tokens - case.target_tokens) <= 1


def _calls(case: Case, reply: Reply) -> bool:
    """The calls that were wanted, in any order, and no other."""
    return Counter(map(_plain, reply.calls)) == Counter(map(_plain, case.target_calls))


def _none(_case: Case, reply: Reply) -> bool:
    return not reply.calls and bool(reply.text.strip())


def _plain(call: Call) -> bytes:
    return msgspec.json.encode({"name": call.name, "arguments": call.arguments}, order="deterministic")


def _json(case: Case, reply: Reply) -> bool:
    text = reply.text.strip()
    fenced = _FENCE.match(text)
    try:
        value: Json = msgspec.json.decode((fenced[1] if fenced else text).encode())
    except msgspec.DecodeError:
        return False
    return value == case.target_json


def _contains(case: Case, reply: Reply) -> bool:
    """The number, and no other one."""
    return _numbers(reply.text) == {case.target}


def _number(case: Case, reply: Reply) -> bool:
    """The last number is the answer: some models say the question first."""
    found = [number.replace(",", "") for number in _NUMBER.findall(reply.text)]
    return bool(found) and found[-1] == case.target


def _numbers(text: str) -> set[str]:
    return {number.replace(",", "") for number in _NUMBER.findall(text)}


def _instruct(case: Case, reply: Reply) -> bool:
    text = reply.text.strip()
    return bool(text) and _RULES[case.rule](text, case.argument)


_RULES: Final[dict[str, Callable[[str, int | str | None], bool]]] = {
    "lower": lambda text, _: text == text.lower() and any(letter.isalpha() for letter in text),
    "lines": lambda text, count: len([line for line in text.splitlines() if line.strip()]) == count,
    "without": lambda text, what: str(what) not in text,
    "begins": lambda text, what: text.startswith(str(what)),
    "words": lambda text, count: len(text.split()) == count,
    "ends": lambda text, what: text.rstrip(".!").endswith(str(what)),
}
_GRADERS: Final[dict[str, Callable[[Case, Reply], bool]]] = {
    "echo": _exact,
    "stop": _exact,
    "limit": _limit,
    "tool": _calls,
    "tool_multiple": _calls,
    "tool_parallel": _calls,
    "tool_none": _none,
    "json": _json,
    "needle": _contains,
    "instruct": _instruct,
    "arithmetic": _number,
}
