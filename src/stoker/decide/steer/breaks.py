"""What broke the cache between two turns of a session, where, and what did it cost?

Compared are the chains of block hashes that the gateway leaves in each record: two prompts share exactly as many
leading blocks as they share text. Three things can go wrong, and they are told apart:

1. *Changed*: the new prompt differs from the old one before the old one's end. Everything from there on is computed
   again, whatever the engine holds. The place tells what did it: the tools, the system prompt, or a turn.
2. *Moved*: the prompt was only continued, but another replica got it.
3. *Forgotten*: continued, at the same replica, and yet not in its cache: evicted, or the cache is off.
"""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec


class Verdict(StrEnum):
    """How a turn found the cache. The words are stable."""

    FIRST = "First"
    CONTINUED = "Continued"
    CHANGED = "PromptChanged"
    MOVED = "OtherReplica"
    FORGOTTEN = "NotInCache"
    UNKNOWN = "NotReported"  # the engine reports no usage, so nobody knows


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a session, as its record has it."""

    at: float
    replica: str  # its incarnation
    blocks: tuple[str, ...]
    prompt_bytes: int
    tools_bytes: int = 0
    system_bytes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one turn.

    ``block`` counts from 0; bytes are from the prompt's start; tokens are estimated from the shares of bytes, and
    bounded by what the engine reports as not cached.
    """

    verdict: Verdict
    block: int = -1
    start_bytes: int = 0
    end_bytes: int = 0
    where: str = ""  # tools | system | messages
    again_tokens: int = 0  # computed again although an earlier turn had them
    advice: str = ""


_CACHED_ENOUGH = 0.5  # of the earlier prompt; engines round down to whole blocks and keep the last one out
_ADVICE = {
    "tools": "The tools changed, or only their order or their keys: routing.normalise.prompt: [tools, keys].",
    "system": "Something in the system prompt changes from turn to turn, often a version, a date or an id: "
    "routing.normalise.prompt: [marker, date, id]; for Claude Code also CLAUDE_CODE_ATTRIBUTION_HEADER=0.",
    "messages": "The client rewrote an earlier turn, as agents do when they compact or drop old results.",
}
_MOVED = (
    "Another replica had the prompt: the first was full, ejected or restarted, or routing.policy is not PrefixCache."
)
_FORGOTTEN = "The replica no longer had it: more sessions than its KV cache holds, or its prefix cache is off."


def explain(turns: Sequence[Turn], ends: Sequence[int]) -> list[Finding]:
    """Explain each turn by the one before; ``turns`` in the order of time, ``ends``: where blocks end, in bytes."""
    found = [Finding(verdict=Verdict.FIRST)] if turns else []
    for before, now in pairwise(turns):
        found.append(_one(before, now, ends))
    return found


def _one(before: Turn, now: Turn, ends: Sequence[int]) -> Finding:
    shared = 0
    for one, other in zip(before.blocks, now.blocks, strict=False):
        if one != other:
            break
        shared += 1
    whole = len(before.blocks) if before.prompt_bytes >= ends[-1] else len(before.blocks) - 1
    if shared < min(whole, len(now.blocks)):
        return _changed(before, now, shared, ends)
    if not now.prompt_tokens:
        return Finding(verdict=Verdict.UNKNOWN)
    expected = min(before.prompt_tokens, now.prompt_tokens)
    lost = max(0, expected - now.cached_tokens)
    if now.cached_tokens >= _CACHED_ENOUGH * expected:
        return Finding(verdict=Verdict.CONTINUED)
    if before.replica != now.replica:
        return Finding(verdict=Verdict.MOVED, again_tokens=lost, advice=_MOVED)
    return Finding(verdict=Verdict.FORGOTTEN, again_tokens=lost, advice=_FORGOTTEN)


def _changed(before: Turn, now: Turn, shared: int, ends: Sequence[int]) -> Finding:
    start = ends[shared - 1] if shared else 0
    if start < before.tools_bytes:
        where = "tools"
    elif start < before.tools_bytes + before.system_bytes:
        where = "system"
    else:
        where = "messages"
    share = 1 - start / before.prompt_bytes if before.prompt_bytes else 0.0
    again = round(min(before.prompt_tokens, now.prompt_tokens) * share)
    return Finding(
        verdict=Verdict.CHANGED,
        block=shared,
        start_bytes=start,
        end_bytes=ends[shared],
        where=where,
        again_tokens=min(again, max(0, now.prompt_tokens - now.cached_tokens)),
        advice=_ADVICE[where],
    )
