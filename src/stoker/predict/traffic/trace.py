"""Recorded requests as public traces and our own tools write them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count, pairwise
from typing import Final

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.predict.batching.loop import Arrival
from stoker.predict.batching.request import Request
from stoker.predict.batching.score import quantile
from stoker.predict.traffic.draw import Quantiles
from stoker.predict.traffic.profile import Profile

# One kind of column under the names that traces have: Azure's, Mooncake's, BurstGPT's, ours.
_PROMPT: Final = ("prompt_tokens", "ContextTokens", "input_length", "input_tokens", "Request tokens")
_OUTPUT: Final = ("output_tokens", "GeneratedTokens", "output_length", "Response tokens")
_AT: Final = ("at_seconds", "timestamp", "TIMESTAMP", "Timestamp")
_SESSION: Final = ("session", "session_id", "chat_id")
_PAGE: Final = 512  # tokens of one of Mooncake's hash ids


def read(rows: Sequence[Mapping[str, Json]], *, file: str, lines: Sequence[int] = ()) -> list[Arrival]:
    """Read rows; raises Invalid naming the line and what it lacks. Mooncake's time is in milliseconds.

    ``lines``: on which line of the file each row stands; empty: the first on the first.
    """
    numbers = count(1)
    keys: dict[str, int] = {}
    last: dict[int, int] = {}
    pages: dict[int, int] = {}
    found = []
    for line, row in zip(lines or range(1, len(rows) + 1), rows, strict=True):
        prompt, output = (_number(row, names, file=file, line=line) for names in (_PROMPT, _OUTPUT))
        session, shared = _reuse(row, keys, numbers, pages=pages, last=last)
        if session:
            last[session] = int(prompt + output)
        request = Request(
            prompt_tokens=max(1, int(prompt)),
            output_tokens=max(1, int(output)),
            session=session,
            shared_tokens=min(shared, int(prompt)),
            head=1 if row.get("head_tokens") else 0,
            head_tokens=min(int(_number(row, ("head_tokens",), file=file, line=line)), int(prompt))
            if row.get("head_tokens")
            else 0,
        )
        found.append(Arrival(_time(row, file=file, line=line), request))
    if not found:
        raise Invalid(Fault(message="it has no rows", file=file))
    return sorted(found, key=lambda arrival: arrival.at)


def _reuse(
    row: Mapping[str, Json], keys: dict[str, int], numbers: "count[int]", *, pages: dict[int, int], last: dict[int, int]
) -> tuple[int, int]:
    """The session of a row, and how much of its prompt that has seen before."""
    hashes = row.get("hash_ids")
    if isinstance(hashes, list) and hashes:
        ids = [each for each in hashes if isinstance(each, int)]
        seen = next((i for i, each in enumerate(ids) if each not in pages), len(ids))
        key = pages[ids[seen - 1]] if seen else next(numbers)
        pages.update(dict.fromkeys(ids, key))
        return key, seen * _PAGE
    name = next((str(row[each]) for each in _SESSION if row.get(each) not in (None, "")), "")
    if not name:
        return 0, 0
    key = keys.setdefault(name, 0) or next(numbers)
    keys[name] = key
    told = row.get("shared_tokens")
    return key, last.get(key, 0) if told in (None, "") else int(float(str(told)))


def _number(row: Mapping[str, Json], names: Sequence[str], *, file: str, line: int) -> float:
    value = next((row[name] for name in names if name in row), None)
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        hint = f"one of the columns {', '.join(names)} with a number from 0 on"
        raise Invalid(Fault(message=f"'{value}' is no count of tokens", file=file, line=line, hint=hint))
    return number


def _time(row: Mapping[str, Json], *, file: str, line: int) -> float:
    value = next((row[name] for name in _AT if name in row), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if "input_length" in row else float(value)
    text = str(value)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip()[:26]).timestamp()
    except ValueError:
        hint = f"one of the columns {', '.join(_AT)} in seconds or as a date"
        raise Invalid(Fault(message=f"'{value}' is no time", file=file, line=line, hint=hint)) from None


def profile(recorded: Sequence[Arrival], *, name: str) -> Profile:
    """The kind of traffic that a trace is: its own lengths, reuse and bursts."""
    requests = [arrival.request for arrival in recorded]
    gaps = [later.at - earlier.at for earlier, later in pairwise(recorded)]
    mean = sum(gaps) / max(1, len(gaps))
    square = sum((gap - mean) ** 2 for gap in gaps) / max(1, len(gaps))
    again = [r for r in requests if r.shared_tokens]
    sessions = len({r.session for r in requests if r.session}) or len(requests)
    grown = sum(r.shared_tokens for r in again) / max(1, sum(r.prompt_tokens for r in again))
    return Profile(
        name=name,
        source=f"{len(requests)} recorded requests",
        prompt=_quantiles([r.prompt_tokens for r in requests]),
        output=_quantiles([r.output_tokens for r in requests]),
        turns=max(1.0, len(requests) / sessions),
        broken=1 - grown if again else 1.0,
        burst=min(4.0, max(0.05, mean**2 / square)) if square else 1.0,
    )


def _quantiles(values: Sequence[int]) -> Quantiles:
    ordered = sorted(float(value) for value in values)
    shares = [i / 20 for i in range(21)]
    return Quantiles(tuple((share, max(1.0, quantile(ordered, share))) for share in shares))
