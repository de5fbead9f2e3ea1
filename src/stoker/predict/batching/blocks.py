"""Who holds which blocks of the KV cache, and what of a prompt is there already?

Every block is free, a running job's, a finished session's (kept until somebody needs the room), or a shared head's.
Sessions give way in the order of their last use, from their end; a head gives way when nothing stands on it.
"""

from collections import OrderedDict
from math import ceil
from typing import Protocol

from stoker.predict.batching.request import Job, Limits, Request


class Cache(Protocol):
    """What a machine asks of a cache. ``HashedBlocks`` is the other one."""

    total: int
    free: int
    evicted: int

    @property
    def available(self) -> int:
        """Blocks that a job can get."""

    @property
    def kept(self) -> int:
        """Blocks that no running job holds and that are still good for something."""

    def needed(self, tokens: int) -> int:
        """Blocks for so many tokens."""

    def take(self, job: Job) -> bool:
        """Give a job the blocks of all that it has to compute; False, and nothing has changed: there are too few."""

    def grow(self, blocks: int) -> None:
        """Take so many blocks."""

    def note(self, job: Job, tokens: int) -> None:
        """So many tokens of a job are in the cache when the planned step ends."""

    def publish(self, job: Job) -> None:
        """The prefill of a job has ended."""

    def release(self, job: Job, *, tokens: int, keep: bool) -> None:
        """Take a job's blocks back."""


class _Session:
    """What a session has left behind: its own blocks, on top of ``base`` blocks of a head."""

    __slots__ = ("base", "blocks", "head")

    def __init__(self, *, blocks: int, base: int, head: int) -> None:
        self.blocks = blocks
        self.base = base
        self.head = head


class _Head:
    """Blocks that many share. ``running`` jobs and ``kept`` sessions stand on them."""

    __slots__ = ("blocks", "kept", "running")

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.running = 1
        self.kept = 0


class Blocks:
    """The cache of one engine."""

    __slots__ = ("_caching", "_heads", "_held", "_sessions", "_size", "evicted", "free", "total")

    def __init__(self, limits: Limits) -> None:
        self.total = self.free = limits.blocks
        self.evicted = 0
        self._size = limits.block_tokens
        self._caching = limits.prefix_cache
        self._held = 0  # by sessions and heads that could give way
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._heads: OrderedDict[int, _Head] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that a job can get."""
        return self.free + self._held

    @property
    def kept(self) -> int:
        """Blocks of finished sessions and of heads."""
        return sum(s.blocks for s in self._sessions.values()) + sum(h.blocks for h in self._heads.values())

    def needed(self, tokens: int) -> int:
        """Blocks for so many tokens."""
        return ceil(tokens / self._size)

    def take(self, job: Job) -> bool:
        """Give a job the blocks of all that it has to compute; False, and nothing has changed: there are too few."""
        request = job.request
        session = self._sessions.get(request.session) if request.session and self._caching else None
        if session is not None and session.head not in (0, request.head):
            session = None  # it began otherwise then
        head = self._heads.get(request.head) if request.head and self._caching else None
        hit = self._hit(request, job.length, session, head)
        base = self._base(hit, session, head)
        reused = max(0, hit - base) if session is not None and session.base == base else 0
        hit = base + reused
        need = self.needed(job.length) - hit
        # What stands on a head that now runs can no longer give way, and neither can what is reused.
        locked = head.blocks if base and head is not None and not head.running else 0
        if need > self.available - locked - reused:
            return False
        self._adopt(request, session, reused, base=base)
        self.grow(need)
        job.own, job.base = need + reused, base
        job.computed = hit * self._size
        job.hit_tokens = max(job.hit_tokens, job.computed)
        return True

    def grow(self, blocks: int) -> None:
        """Take so many blocks, from those that are kept where none is free."""
        while self.free < blocks:
            self._evict(blocks - self.free)
        self.free -= blocks

    def note(self, job: Job, tokens: int) -> None:
        """Nothing: a head is there after the whole prefill, a session when its job ends."""

    def publish(self, job: Job) -> None:
        """After its prefill a job's head is there for others."""
        request = job.request
        whole = request.head_tokens // self._size
        if not self._caching or not request.head or job.base or whole < 1 or request.head in self._heads:
            return
        whole = min(whole, job.own)
        self._heads[request.head] = _Head(whole)
        job.own -= whole
        job.base = whole

    def release(self, job: Job, *, tokens: int, keep: bool) -> None:
        """Take a job's blocks back; ``tokens`` of it are in the cache, and stay there for its session."""
        request = job.request
        full = max(0, min(job.own, tokens // self._size - job.base))
        head = self._heads.get(request.head) if job.base else None
        if keep and self._caching and request.session and full:
            self._forget(request.session)
            self._sessions[request.session] = _Session(blocks=full, base=job.base, head=request.head if job.base else 0)
            self._held += full
            self.free += job.own - full
            if head is not None:
                head.kept += 1
        else:
            self.free += job.own
        if head is not None:
            head.running -= 1
            if not head.running:
                self._held += head.blocks
        job.own = job.base = 0

    def _hit(self, request: Request, length: int, session: _Session | None, head: _Head | None) -> int:
        """Whole blocks of the prompt that are there. The last token is always computed: it gives the first answer."""
        most = (length - 1) // self._size
        if session is not None:
            return min(most, request.shared_tokens // self._size, session.base + session.blocks)
        if head is not None:
            return min(most, request.head_tokens // self._size, head.blocks)
        return 0

    def _base(self, hit: int, session: _Session | None, head: _Head | None) -> int:
        """Blocks of the head that a job stands on; a head is used whole or not at all."""
        if session is not None and session.base:
            return session.base if hit >= session.base else 0
        return head.blocks if session is None and head is not None and hit >= head.blocks else 0

    def _adopt(self, request: Request, session: _Session | None, reused: int, *, base: int) -> None:
        if base:
            head = self._heads[request.head]
            if not head.running:
                self._held -= head.blocks
            head.running += 1
            self._heads.move_to_end(request.head)
        if session is not None:
            self._held -= reused
            session.blocks -= reused
            self._forget(request.session)

    def _forget(self, key: int) -> None:
        """A session's blocks become free."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self.free += session.blocks
            self._held -= session.blocks
            self._leave(session)

    def _leave(self, session: _Session) -> None:
        if session.head:
            self._heads[session.head].kept -= 1

    def _evict(self, wanted: int) -> None:
        """Free at least one and at most so many blocks, of what was used least recently."""
        if self._sessions:
            key, session = next(iter(self._sessions.items()))
            gone = min(wanted, session.blocks)
            session.blocks -= gone
            if not session.blocks:
                del self._sessions[key]
                self._leave(session)
        else:
            key = next(key for key, head in self._heads.items() if not head.running and not head.kept)
            gone = self._heads.pop(key).blocks
        self.evicted += gone
        self.free += gone
        self._held -= gone
