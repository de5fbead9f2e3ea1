"""What did a whole answer use, when an engine reports it once, again and again, or for each choice by itself?

1. A chunk without choices reports on the answer. llama.cpp sends one for each choice of ``n``, all about one prompt:
   what came out adds up. Taking the last one let a caller have three of four choices for nothing.
2. Where there is none, the chunk that finishes a choice reports on that choice (llama.cpp's completions, where each may
   have a prompt of its own): everything adds up.
3. Anything else is a running total: the last one counts until 1 or 2 applies.
"""

from typing import Final

import msgspec


class Details(msgspec.Struct, frozen=True):
    """The parts of a count that engines name."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts as an engine reports them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None


_NOTHING: Final = Details()


def joined(before: Usage, report: Usage, *, one_prompt: bool) -> Usage:
    """Put the reports on two choices of one answer together."""
    have, more = before.prompt_tokens_details or _NOTHING, report.prompt_tokens_details or _NOTHING
    cached = _together(have.cached_tokens, more.cached_tokens, most=one_prompt)
    had, thought = before.completion_tokens_details or _NOTHING, report.completion_tokens_details or _NOTHING
    reasoning = _together(had.reasoning_tokens, thought.reasoning_tokens)
    return Usage(
        prompt_tokens=_together(before.prompt_tokens, report.prompt_tokens, most=one_prompt),
        completion_tokens=_together(before.completion_tokens, report.completion_tokens),
        prompt_tokens_details=Details(cached_tokens=cached),
        completion_tokens_details=Details(reasoning_tokens=reasoning),
    )


def _together(first: int | None, second: int | None, *, most: bool = False) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second) if most else first + second
