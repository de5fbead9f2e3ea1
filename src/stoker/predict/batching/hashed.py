"""Which blocks of a prompt are in the cache, when each is known by its hash? As vLLM has it: exact, block by block.

``Blocks`` knows sessions and heads, which is enough for traffic that is drawn; here the words themselves are known, so
that any prompt finds what any other has left, also while that one still runs. Two rules beyond those of ``Blocks``:

1. A block can be used as soon as the step that computes it is planned: one further down in the same step finds it.
2. What nobody uses gives way in the order of its last use, the end of a prompt before its beginning.
"""

from collections import OrderedDict
from math import ceil
from typing import NamedTuple

from stoker.predict.batching.request import Job, Limits


class _Held(NamedTuple):
    """What a running job stands on: its known blocks, and how many of its hashes were looked at."""

    known: list[int]
    looked: int


class HashedBlocks:
    """The cache of one engine. Blocks are free, a running job's, or idle: nobody's, but known by their hash."""

    __slots__ = ("_caching", "_held", "_idle", "_size", "_users", "evicted", "free", "total")

    def __init__(self, limits: Limits) -> None:
        self.total = self.free = limits.blocks
        self.evicted = 0
        self._size = limits.block_tokens
        self._caching = limits.prefix_cache
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._held: dict[int, _Held] = {}

    @property
    def available(self) -> int:
        """Blocks that a job can get."""
        return self.free + len(self._idle)

    @property
    def kept(self) -> int:
        """Blocks that nobody uses and that are still known."""
        return len(self._idle)

    def needed(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return ceil(tokens / self._size)

    def take(self, job: Job) -> bool:
        """Give a job the blocks of all that it has to compute; False, and nothing has changed: there are too few."""
        found = self._found(job)
        idle = sum(block in self._idle for block in found)
        whole = self.needed(job.length)
        if whole - len(found) > self.available - idle:
            return False
        for block in found:
            self._idle.pop(block, None)
            self._users[block] = self._users.get(block, 0) + 1
        self.grow(whole - len(found))
        self._held[job.order] = _Held(found, len(found))
        job.own, job.base = whole, 0
        job.computed = len(found) * self._size
        if not job.preempted:
            job.hit_tokens = job.computed
        return True

    def grow(self, blocks: int) -> None:
        """Take so many blocks, from those that are idle where none is free."""
        while self.free < blocks:
            self._idle.popitem(last=False)
            self.evicted += 1
            self.free += 1
        self.free -= blocks

    def note(self, job: Job, tokens: int) -> None:
        """So many tokens of a job are in the cache when the planned step ends: others find its whole blocks."""
        if not self._caching:
            return
        held = self._held[job.order]
        known, upto = held.known, tokens // self._size
        for block in job.request.hashes[held.looked : upto]:
            if block not in self._users and block not in self._idle:  # else another has computed the same: a copy
                self._users[block] = 1
                known.append(block)
        self._held[job.order] = _Held(known, max(held.looked, upto))

    def publish(self, job: Job) -> None:
        """Nothing: whole blocks are known since they were planned."""

    def release(self, job: Job, *, tokens: int, keep: bool) -> None:
        """Take a job's blocks back. What is known stays so, also of a job that was thrown out."""
        if keep:
            self.note(job, tokens)
        known = self._held.pop(job.order).known
        self.free += job.own - len(known)
        for block in reversed(known):
            self._users[block] -= 1
            if not self._users[block]:
                del self._users[block]
                self._idle[block] = None
        job.own = job.base = 0

    def _found(self, job: Job) -> list[int]:
        """The blocks of a prompt that are there. The last token is always computed: it gives the first answer."""
        found: list[int] = []
        if self._caching:
            for block in job.request.hashes[: (job.length - 1) // self._size]:
                if block not in self._users and block not in self._idle:
                    break
                found.append(block)
        return found
