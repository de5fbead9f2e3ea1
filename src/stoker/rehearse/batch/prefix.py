"""Which part of a prompt has this engine seen before? By a chain of hashes over pages of words, as engines do it.

The machine knows sessions, each with what it has left in the cache, and heads that several stand on. A prompt that goes
on from all that a session had is that session's; one that leaves it in the middle begins a session of its own, on the
head that both share.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Final, NamedTuple

_KEPT: Final = 1 << 18  # pages that are remembered


class Shared(NamedTuple):
    """What a prompt shares: as the machine wants to know it."""

    session: int
    shared_tokens: int
    head: int
    head_tokens: int


class _End(NamedTuple):
    """How far a session has come, and the head that it stands on."""

    pages: int
    head: int
    head_tokens: int


class Prefixes:
    """Pages of prompts, each with the session that had it last."""

    __slots__ = ("_ends", "_numbers", "_owners", "_page")

    def __init__(self, page_tokens: int) -> None:
        self._page = page_tokens
        self._owners: OrderedDict[int, int] = OrderedDict()
        self._ends: OrderedDict[int, _End] = OrderedDict()
        self._numbers = count(1)

    def take(self, tokens: Sequence[str]) -> Shared:
        """Find what is shared, and remember the prompt."""
        pages = self._pages(tokens)
        seen = next((i for i, page in enumerate(pages) if page not in self._owners), len(pages))
        owner = self._owners[pages[seen - 1]] if seen else 0
        end = self._ends.get(owner)
        goes_on = end is not None and seen >= end.pages
        session = owner if goes_on else next(self._numbers)
        for page in pages if goes_on else pages[seen:]:
            self._owners[page] = session
            self._owners.move_to_end(page)
        shared = seen * self._page
        if end is not None and goes_on:
            head, head_tokens = end.head, end.head_tokens
        else:
            head, head_tokens = (pages[seen - 1], shared) if seen else (0, 0)
        self._ends[session] = _End(len(pages), head, head_tokens)
        self._ends.move_to_end(session)
        self._forget()
        return Shared(session, shared, head, head_tokens)

    def _pages(self, tokens: Sequence[str]) -> list[int]:
        chain, found = 0, []
        for at in range(0, len(tokens) - self._page + 1, self._page):
            chain = hash((chain, *tokens[at : at + self._page])) or 1
            found.append(chain)
        return found

    def _forget(self) -> None:
        while len(self._owners) > _KEPT:
            self._owners.popitem(last=False)
        while len(self._ends) > _KEPT:
            self._ends.popitem(last=False)
