"""The machine in real time: its steps end when they should, and each request hears of its tokens.

Steps follow each other on the machine's own time line. A host that is late catches up instead of stretching it: what a
client measures is then the model's time, and not that of this Python process.
"""

import asyncio
from collections.abc import Callable, Sequence
from math import inf

from stoker.base import clock
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Job, Request
from stoker.rehearse.batch.histogram import Seen

_COARSE_SECONDS = 0.0015


class Turn:
    """One request in the machine, and how many of its tokens have been made."""

    __slots__ = ("_waiter", "granted", "job", "taken")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.granted = 0
        self.taken = 0
        self._waiter: asyncio.Future[None] | None = None

    async def tokens(self, count: int) -> None:
        """Wait until so many more tokens have been made."""
        self.taken += count
        while self.taken > self.granted:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def grant(self, made: int) -> int:
        """Hear how many there are now; tells how many of them are new."""
        fresh = max(0, made - self.granted)
        self.granted += fresh
        if self._waiter is not None and not self._waiter.done() and self.granted >= self.taken:
            self._waiter.set_result(None)
        return fresh

    @property
    def truth(self) -> dict[str, float]:
        """What the model itself gives, in its own seconds."""
        job = self.job
        first = job.first - job.arrived if job.first < inf else 0.0
        last = job.finished - job.arrived if job.finished < inf else 0.0
        return {"model_first_token_seconds": first, "model_last_token_seconds": last, "cached_tokens": job.hit_tokens}


class Clockwork:
    """Moves one machine. ``speed``: so many of its seconds pass in one of ours."""

    def __init__(
        self,
        machine: Machine,
        *,
        seen: Seen | None = None,
        speed: float = 1.0,
        mono: Callable[[], float] = clock.mono,
    ) -> None:
        self.machine = machine
        self.speed = speed
        self.seen = seen or Seen()
        self.generated_tokens = 0
        self.turned_away = 0  # because too many waited
        self._mono = mono
        self._begun = mono()
        self._turns: set[Turn] = set()
        self._work = asyncio.Event()
        self._free_at = 0.0  # when the last step ends, in the machine's seconds

    @property
    def now(self) -> float:
        """The machine's time."""
        return (self._mono() - self._begun) * self.speed

    def submit(self, request: Request, came: float | None = None) -> Turn | None:
        """Take a request that ``came`` a moment ago; None: it could never end here, or too many wait."""
        job = self.machine.submit(request, self.now if came is None else (came - self._begun) * self.speed)
        if job is None:
            return None
        turn = Turn(job)
        self._turns.add(turn)
        self._work.set()
        return turn

    def leave(self, turn: Turn) -> None:
        """Its client is gone, or has all that it asked for."""
        if turn in self._turns:
            self._turns.discard(turn)
            self.machine.cancel(turn.job)

    async def run(self) -> None:
        """Step for ever."""
        while True:
            if not (self.machine.running or self.machine.waiting):
                self._work.clear()
                await self._work.wait()
                await asyncio.sleep(0)  # what comes in the same moment shares the first step
                self._free_at = max(self._free_at, self.now)
            await self._step()

    async def _step(self) -> None:
        decoding = len(self.machine.decoding)
        step = self.machine.step(self._free_at, most=1)
        if step is None:  # it has work and cannot begin it: somebody must leave first
            self._work.clear()
            await self._work.wait()
            return
        self._free_at += step.seconds
        await self._until(self._free_at)
        for job in step.first:
            self.seen.first.observe(job.ttft)
        if step.ticks and decoding:
            self.seen.between.observe(step.seconds / step.ticks, decoding)
        ended = set(step.finished)
        if step.first:
            begun = set(step.first)
            self._tell([turn for turn in self._turns if turn.job in begun], ended)
            await asyncio.sleep(0)  # they are written now, before hundreds of others: writes go out at a turn's end
            await asyncio.sleep(0)
        self._tell(list(self._turns), ended)

    async def _until(self, at: float) -> None:
        """Wait for a moment of the machine. The loop's timers are coarse: the last millisecond is spun away."""
        left = (at - self.now) / self.speed
        await asyncio.sleep(max(0.0, left - _COARSE_SECONDS))
        while self.now < at:  # noqa: ASYNC110 -- nobody else knows when it is time
            await asyncio.sleep(0)

    def _tell(self, turns: Sequence[Turn], ended: set[Job]) -> None:
        """Tell how many tokens there are."""
        machine = self.machine
        for turn in turns:
            if turn.job not in ended:
                self.generated_tokens += turn.grant(machine.tokens(turn.job))
            elif turn in self._turns:
                self._turns.discard(turn)
                self.seen.ended(turn.job)
                self.generated_tokens += turn.grant(turn.job.request.output_tokens)
