"""A trace out of the own ledger: what was asked when, how long it was, and what of it had been sent before.

The ledger holds no text, only a salted chain of hashes for the beginning of each prompt. That is enough: two prompts
share what their leading hashes share. Without a session of the client's own, a prompt that begins with more than half
of an earlier one is taken for the next turn of that conversation; less is what strangers share, a system prompt.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from statistics import median
from typing import Final, cast

from stoker.base.json import JsonObject

_ASKING: Final = ("chat", "completions", "messages", "responses")
_NO_REQUEST: Final = ("rejected", "lost", "cancelled")
_CONTINUED: Final = 0.5  # of the earlier prompt's blocks


@dataclass(frozen=True, slots=True)
class _Asked:
    """One record, as far as it matters here."""

    at: float
    prompt: int
    output: int
    cached: int
    session: str
    blocks: tuple[str, ...]


def rows(records: Iterable[JsonObject]) -> list[JsonObject]:
    """Write the rows of a trace, in the order of time; what was refused or is no conversation is left out.

    ``shared_tokens`` are those that the engine found in its cache, or where none ever reported such, what the hashes
    say. ``head_tokens`` are the part that other sessions have, too, the same in every turn of a session.
    """
    asked = _grouped(sorted(_asking(records), key=lambda one: one.at))
    reported = any(one.cached for one in asked)
    owners: dict[str, set[str]] = defaultdict(set)
    for one in asked:
        for block in one.blocks:
            owners[block].add(one.session)
    seen: set[str] = set()
    shared = []
    for one in asked:
        known = sum(1 for _ in takewhile(seen.__contains__, one.blocks))
        shared.append(min(one.prompt, one.cached if reported else _part(one, known)))
        seen.update(one.blocks)
    heads = _heads(asked, shared, owners, reported=reported)
    return [
        {
            "at_seconds": round(one.at - asked[0].at, 3),
            "prompt_tokens": one.prompt,
            "output_tokens": one.output,
            "session": one.session,
            "shared_tokens": known,
            "head_tokens": min(heads[one.session], one.prompt),
        }
        for one, known in zip(asked, shared, strict=True)
    ]


def _heads(
    asked: Sequence[_Asked], shared: Sequence[int], owners: Mapping[str, set[str]], *, reported: bool
) -> dict[str, int]:
    """Say how long the head is that a session shares with others: one length for all that share the same one.

    A head that were longer in one turn than in the next would part the two right behind it. What an engine found in
    its cache of a session's first request is the best measure; the hashes know whole kilobytes only.
    """
    first: dict[str, str] = {}
    measured: dict[str, list[int]] = defaultdict(list)
    guessed: dict[str, list[int]] = defaultdict(list)
    for one, known in zip(asked, shared, strict=True):
        if one.session in first:
            continue
        blocks = sum(1 for _ in takewhile(lambda block: len(owners[block]) > 1, one.blocks))
        name = one.blocks[0] if blocks else ""
        first[one.session] = name
        if name:
            guessed[name].append(_part(one, blocks))
        if name and known and reported:
            measured[name].append(known)
    return {
        session: round(median(measured.get(name) or guessed[name])) if name else 0 for session, name in first.items()
    }


def _asking(records: Iterable[JsonObject]) -> Iterable[_Asked]:
    for record in records:
        prompt, output = _number(record, "prompt_tokens"), _number(record, "output_tokens")
        wanted = record.get("dialect") in _ASKING and record.get("outcome") not in _NO_REQUEST
        if wanted and prompt and output:
            blocks = record.get("blocks")
            yield _Asked(
                at=float(cast("float", record["at_seconds"])),
                prompt=prompt,
                output=output,
                cached=_number(record, "cached_tokens"),
                session=str(record.get("session") or ""),
                blocks=tuple(str(block) for block in blocks) if isinstance(blocks, list) else (),
            )


def _grouped(asked: Sequence[_Asked]) -> list[_Asked]:
    """Give every request a session: its own, or that of the prompt which it goes on from."""
    names = count(1)
    known: dict[str, tuple[str, int]] = {}  # by hash: the last session that had it, and how many blocks it had then
    found = []
    for one in asked:
        name = one.session or _continued(one.blocks, known) or f"p{next(names)}"
        known.update(dict.fromkeys(one.blocks, (name, len(one.blocks))))
        found.append(_Asked(one.at, one.prompt, one.output, one.cached, name, one.blocks))
    return found


def _continued(blocks: Sequence[str], known: dict[str, tuple[str, int]]) -> str:
    for position in range(len(blocks) - 1, -1, -1):
        if blocks[position] in known:
            name, before = known[blocks[position]]
            return name if position + 1 > before * _CONTINUED else ""
    return ""


def _part(one: _Asked, blocks: int) -> int:
    """Turn leading blocks into tokens; the last block is mostly incomplete, so what is whole is counted without it."""
    if not blocks:
        return 0
    return one.prompt if blocks == len(one.blocks) else round(one.prompt * blocks / len(one.blocks))


def _number(record: JsonObject, name: str) -> int:
    value = record.get(name)
    return int(value) if isinstance(value, int | float) else 0
