"""Was this asked before: by an agent that asks twice, by a request that killed engines, or by ourselves as a retry?

All workers of a machine share what they know. Marks are hashes of a credential, a session and a body; nothing else is
kept.
"""

from collections import Counter, deque
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol

from stoker.decide.again.poison import poisonous
from stoker.drivers.tables.retries import Retries
from stoker.drivers.tables.strikes import Strikes
from stoker.drivers.tables.turns import Turns

_SUSPECTS: Final = 256  # of one endpoint: more ran there at once than anybody will name
_ENDPOINTS: Final = 64
_END_BYTES: Final = 512 << 10
_SUSPECT_SECONDS: Final = 30.0  # an engine that dies later than this died of something else


def _mark(body: bytes, key: str) -> "blake2b":
    """Hash a body; of one above a megabyte both ends and the length, so that nobody waits for it."""
    mark = blake2b(digest_size=8, key=key.encode()[:64])
    if len(body) <= 2 * _END_BYTES:
        mark.update(body)
    else:
        view = memoryview(body)
        mark.update(view[:_END_BYTES])
        mark.update(view[-_END_BYTES:])
        mark.update(b"%d" % len(body))
    return mark


class Turn(Protocol):
    """A turn of an agent that runs here."""

    def supersede(self) -> None:
        """End it: the same was asked again."""


class Again:
    """What is remembered of earlier requests."""

    def __init__(self, run: Path, worker: int) -> None:
        self._strikes = Strikes(run / "strikes")
        self._turns = Turns(run / "turns", worker)
        self._retries = Retries(run / "retries")
        self._suspects: dict[tuple[str, str], deque[tuple[bytes, float]]] = {}
        self._came: Counter[str] = Counter()  # requests by service since its budget was last asked
        self.running: dict[bytes, tuple[Turn, int]] = {}

    # Poison.

    def suspicious(self, now: float) -> bool:
        """Whether any request is under suspicion at all."""
        return self._strikes.any(now)

    @staticmethod
    def poison_mark(service: str, body: bytes) -> bytes:
        """Mark a request, whoever sends it."""
        return _mark(body, service).digest()

    def poisonous(self, mark: bytes, now: float) -> bool:
        """Whether a request is refused."""
        strikes, at = self._strikes.of(mark)
        return poisonous(strikes, struck_at=at, now=now)

    def suspect(self, endpoint: str, incarnation: str, mark: bytes, now: float) -> None:
        """Note who was there when an endpoint broke an answer off; it may have died, or not."""
        there = self._suspects.setdefault((endpoint, incarnation), deque(maxlen=_SUSPECTS))
        there.append((mark, now))
        if len(self._suspects) > _ENDPOINTS:
            del self._suspects[next(iter(self._suspects))]

    def died(self, endpoint: str, incarnation: str, now: float) -> None:
        """Strike all who were there: the endpoint refuses connections now, or the routes no longer have it."""
        for mark, at in self._suspects.pop((endpoint, incarnation), ()):
            if now - at < _SUSPECT_SECONDS:
                self._strikes.strike(mark, now)

    def harmless(self, mark: bytes) -> None:
        """Free a request that was answered."""
        self._strikes.clear(mark)

    # Duplicates.

    @staticmethod
    def turn_mark(key_id: str, session: bytes, body: bytes) -> bytes:
        """Mark a turn of an agent."""
        mark = _mark(body, key_id)
        mark.update(session)
        return mark.digest()

    def earlier(self, mark: bytes) -> Turn | None:
        """Find the same turn where it runs in this worker."""
        found = self.running.get(mark)
        return found[0] if found is not None else None

    def claim(self, mark: bytes, turn: Turn) -> None:
        """Let a turn run; another worker that runs the same hears of it."""
        self.running[mark] = (turn, self._turns.claim(mark))

    def release(self, mark: bytes, turn: Turn) -> None:
        """Take note of a turn's end."""
        found = self.running.get(mark)
        if found is not None and found[0] is turn:
            del self.running[mark]
            self._turns.release(mark, found[1])

    def look(self) -> None:
        """End the turns that another worker was asked for since."""
        for mark, (turn, number) in list(self.running.items()):
            if self._turns.lost(mark, number):
                turn.supersede()

    # Retries.

    def came(self, service: str) -> None:
        """Count a request: each lends a part of a retry."""
        self._came[service] += 1

    def may_retry(self, service: str, now: float) -> bool:
        """Take a retry out of the budget of all workers."""
        return self._retries.spend(service, requests=self._came.pop(service, 0), now=now)

    def close(self) -> None:
        """Unmap."""
        for table in (self._strikes, self._turns, self._retries):
            table.close()
