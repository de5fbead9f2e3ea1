"""One engine under continuous batching: what does its next step do, and how long does it take?

Six rules, as vLLM has them:

1. Every decoding sequence gets its token first. Where a block is missing, the last of lowest rank is thrown out, and
   computes its prompt and its own words again later.
2. What is left of the step's token budget goes to prompts, in pieces, the oldest first.
3. A waiting request begins when there is a sequence free, budget left, and room for all of its prompt; nobody overtakes
   an equal. After a preemption nobody begins in that step.
4. What a session has sent before and is still in the cache is not computed again, save the last token.
5. A prompt's last piece gives the first token.
6. A request that could never end, for want of blocks or context, is refused when it comes.

The caller brings the time and says how far it may move: ``step`` returns what is true at ``now + seconds``. Where only
decoding is going on, equal steps are taken at once up to the next event.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf
from typing import Final, NamedTuple

from stoker.predict.batching.blocks import Blocks, Cache
from stoker.predict.batching.request import Batch, Job, Limits, Request, StepTime

_FAR: Final = 1 << 30  # steps: more than any output has tokens


class _Piece(NamedTuple):
    """A part of a prompt that one step computes."""

    job: Job
    tokens: int


@dataclass(slots=True)
class Step:
    """What one call of ``step`` did. ``ticks``: tokens that each sequence which decoded before it has got."""

    seconds: float
    ticks: int
    prefilled: int = 0  # tokens of prompts
    first: list[Job] = field(default_factory=list)  # got their first token
    finished: list[Job] = field(default_factory=list)
    preempted: list[Job] = field(default_factory=list)


@dataclass(slots=True)
class Gauges:
    """What filled the time, in seconds; ``blocked_*`` while somebody waited, by what he waited for."""

    busy: float = 0.0
    prefilling: float = 0.0
    sequence_seconds: float = 0.0
    block_seconds: float = 0.0
    blocked_sequences: float = 0.0
    blocked_cache: float = 0.0
    blocked_budget: float = 0.0
    decoded_tokens: int = 0
    prefilled_tokens: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    steps: int = 0
    preemptions: int = 0
    refused: int = 0


class Machine:
    """The state of one engine."""

    __slots__ = (
        "_blocks", "_context", "_decoding", "_ends", "_entries", "_limits", "_made", "_phases", "_prefilling", "_shown",
        "_step_time", "_tick", "_waiting", "_why", "gauges",
    )  # fmt: skip

    def __init__(self, limits: Limits, step_time: StepTime, cache: Cache | None = None) -> None:
        self.gauges = Gauges()
        self._limits = limits
        self._step_time = step_time
        self._blocks: Cache = cache or Blocks(limits)
        self._waiting: list[tuple[int, int, Job]] = []
        self._prefilling: list[Job] = []
        self._decoding: dict[int, Job] = {}
        self._ends: list[tuple[int, int, Job]] = []  # by the tick at which they end; those thrown out are left in
        self._shown: list[tuple[int, int, Job]] = []  # by the tick of their first visible token
        self._phases = [0] * limits.block_tokens  # how many need a block at ticks of this remainder
        self._tick = 0
        self._context = 0
        self._made = self._entries = 0
        self._why = ""

    @property
    def running(self) -> int:
        """Requests that it works on."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Requests that it has not begun."""
        return len(self._waiting)

    @property
    def decoding(self) -> tuple[Job, ...]:
        """Jobs that get a token in the next step."""
        return tuple(self._decoding.values())

    @property
    def blocks(self) -> Cache:
        """The cache."""
        return self._blocks

    @property
    def held(self) -> int:
        """Blocks of running jobs, each with what it has grown by; shared heads are not counted."""
        growing = sum(self._grown(job) for job in self._decoding.values())
        return growing + sum(job.own for job in self._prefilling)

    def tokens(self, job: Job) -> int:
        """Tokens that a job has made."""
        return job.made + (self._tick - job.born if job.born >= 0 else 0)

    def submit(self, request: Request, now: float) -> Job | None:
        """Take a request; None: refused, for it is too long or too many wait."""
        limits, whole = self._limits, request.prompt_tokens + request.output_tokens
        too_long = limits.context_tokens and whole > limits.context_tokens
        if too_long or self._blocks.needed(whole) > limits.blocks or (limits.queue and self.waiting >= limits.queue):
            self.gauges.refused += 1
            return None
        job = Job(request, order=self._made, now=now)
        self._made += 1
        heappush(self._waiting, (*job.rank, job))
        return job

    def cancel(self, job: Job) -> None:
        """Its client is gone; what it computed stays in the cache for its session."""
        if job.born >= 0:
            self._leave(job, keep=True)
        elif job in self._prefilling:
            self._prefilling.remove(job)
            self._blocks.release(job, tokens=job.computed, keep=True)
        else:
            self._waiting = [(*kept.rank, kept) for *_, kept in self._waiting if kept is not job]
            self._waiting.sort()

    def step(self, now: float, *, until: float = inf, most: int = _FAR) -> Step | None:
        """Move on; up to ``most`` steps at once, and not beyond the first that ends at or after ``until``."""
        step = Step(seconds=0.0, ticks=0)
        self._make_room(step)
        pieces = self._pieces(now, admit=not step.preempted)
        if not pieces and not self._decoding:
            return step if step.preempted else None
        ticks = 1 if pieces else self._jump(now, until, most)
        self._time(step, ticks, pieces)
        self._decode(step, now, ticks)
        end = now + step.seconds
        for piece in pieces:
            self._compute(step, piece, end)
        self._finish(step, end)
        return step

    def _make_room(self, step: Step) -> None:
        while self._decoding and self._phases[self._tick % len(self._phases)] > self._blocks.available:
            victim = max((*self._decoding.values(), *self._prefilling), key=lambda job: job.rank)
            self._throw_out(victim)
            step.preempted.append(victim)
        # Taken at once: a prompt that begins in this step must not get what its elders need.
        self._blocks.grow(self._phases[self._tick % len(self._phases)])

    def _throw_out(self, job: Job) -> None:
        made = self.tokens(job)
        if job.born >= 0:
            self._leave(job, keep=False)
        else:
            self._prefilling.remove(job)
            self._blocks.release(job, tokens=0, keep=False)
        job.made, job.length, job.computed = made, job.request.prompt_tokens + made, 0
        job.preempted += 1
        self.gauges.preemptions += 1
        heappush(self._waiting, (*job.rank, job))

    def _pieces(self, now: float, *, admit: bool) -> list[_Piece]:
        """Divide the budget over prompts."""
        budget = self._limits.batch_tokens - len(self._decoding)
        pieces: list[_Piece] = []
        for job in self._prefilling:
            if budget <= 0:
                break
            budget -= self._piece(pieces, job, budget)
        self._why = ""
        while self._waiting and admit:
            self._why = self._blocked(budget)
            job = self._waiting[0][2]
            if self._why or not self._blocks.take(job):
                self._why = self._why or "cache"
                break
            heappop(self._waiting)
            self._prefilling.append(job)
            if not job.preempted:
                job.began = now
                self.gauges.prompt_tokens += job.length
                self.gauges.hit_tokens += job.computed
            budget -= self._piece(pieces, job, budget)
        return pieces

    def _piece(self, pieces: list[_Piece], job: Job, budget: int) -> int:
        tokens = min(job.length - job.computed, budget)
        pieces.append(_Piece(job, tokens))
        self._blocks.note(job, job.computed + tokens)
        return tokens

    def _blocked(self, budget: int) -> str:
        if self.running >= self._limits.sequences:
            return "sequences"
        return "budget" if budget <= 0 else ""

    def _jump(self, now: float, until: float, most: int) -> int:
        """How many equal steps can be taken at once."""
        ticks = min(most, self._next_end() - self._tick)
        if ticks > 1 and until < inf:
            each = self._step_time(Batch(len(self._decoding), self._context))
            ticks = min(ticks, max(1, ceil((until - now) / each))) if each > 0 else ticks
        if ticks > 1 and len(self._decoding) * (ticks // len(self._phases) + 1) > self._blocks.available:
            ticks = self._affordable(ticks)
        return max(1, ticks)

    def _affordable(self, ticks: int) -> int:
        left, size = self._blocks.available, len(self._phases)
        for done in range(1, ticks):  # the first is paid
            left -= self._phases[(self._tick + done) % size]
            if left < 0:
                return done
        return ticks

    def _next_end(self) -> int:
        while self._ends[0][2].finish_tick != self._ends[0][0]:
            heappop(self._ends)
        return self._ends[0][0]

    def _time(self, step: Step, ticks: int, pieces: list[_Piece]) -> None:
        decodes = len(self._decoding)
        step.prefilled = sum(piece.tokens for piece in pieces)
        pairs = sum(piece.tokens * (piece.job.computed + piece.tokens / 2) for piece in pieces)
        context = self._context + decodes * (ticks - 1) / 2
        step.seconds = ticks * self._step_time(Batch(decodes, context, step.prefilled, pairs))
        step.ticks = ticks if decodes else 0
        gauges = self.gauges
        gauges.steps += ticks
        gauges.busy += step.seconds
        gauges.sequence_seconds += step.seconds * self.running
        gauges.block_seconds += step.seconds * (self._blocks.total - self._blocks.available)
        gauges.decoded_tokens += step.ticks * decodes
        gauges.prefilled_tokens += step.prefilled
        gauges.prefilling += step.seconds if pieces else 0.0
        if self._why:
            name = f"blocked_{self._why}"
            setattr(gauges, name, getattr(gauges, name) + step.seconds)

    def _decode(self, step: Step, now: float, ticks: int) -> None:
        if not step.ticks:
            return
        size = len(self._phases)
        whole, rest = divmod(ticks, size)
        grown = whole * len(self._decoding) + sum(self._phases[(self._tick + i) % size] for i in range(rest))
        self._blocks.grow(grown - self._phases[self._tick % size])
        begun = self._tick
        self._tick += ticks
        self._context += ticks * len(self._decoding)
        while self._shown and self._shown[0][0] <= self._tick:
            tick, _, job = heappop(self._shown)
            if job.born >= 0 and job.visible == inf and job.made + tick - job.born > job.request.hidden_tokens:
                job.visible = now + step.seconds * (tick - begun) / ticks

    def _compute(self, step: Step, piece: _Piece, end: float) -> None:
        job = piece.job
        job.computed += piece.tokens
        if job.computed < job.length:
            return
        self._prefilling.remove(job)
        self._blocks.publish(job)
        job.made += 1
        job.born = self._tick
        job.finish_tick = self._tick + job.request.output_tokens - job.made
        if job.first == inf:
            job.first = end
            step.first.append(job)
            job.visible = end if not job.request.hidden_tokens else inf
        self._decoding[job.order] = job
        self._context += job.length
        self._phases[(job.born - job.length) % len(self._phases)] += 1
        self._entries += 1  # one job may be listed twice for one tick, after it was thrown out
        heappush(self._ends, (job.finish_tick, self._entries, job))
        if job.visible == inf:
            shown = self._tick + max(0, job.request.hidden_tokens + 1 - job.made)
            heappush(self._shown, (min(shown, job.finish_tick), self._entries, job))

    def _finish(self, step: Step, end: float) -> None:
        while self._ends and self._ends[0][0] <= self._tick:
            tick, _, job = heappop(self._ends)
            if job.finish_tick != tick or job.born < 0:
                continue  # it was thrown out since
            self._leave(job, keep=True)
            job.made = job.request.output_tokens
            job.finished = end
            job.visible = min(job.visible, end)
            step.finished.append(job)

    def _leave(self, job: Job, *, keep: bool) -> None:
        """Take a decoding job out."""
        del self._decoding[job.order]
        grown = self._tick - job.born
        self._phases[(job.born - job.length) % len(self._phases)] -= 1
        self._context -= job.length + grown
        job.own = self._grown(job)
        self._blocks.release(job, tokens=job.length + grown, keep=keep)
        job.made += grown
        job.born = job.finish_tick = -1

    def _grown(self, job: Job) -> int:
        return self._blocks.needed(job.length + self._tick - job.born) - job.base
