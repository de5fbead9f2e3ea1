"""How is one step of load sent? On one thread and one loop, on time, and it says when it was not.

1. A request is timed from the moment at which it was *scheduled*. Bodies are made before that moment, not at it.
2. When the window ends nothing more is sent, and what is under way is waited for: dropping it would leave out the
   slowest. Where a bar is known, a request is given up once it cannot meet it; it is then a timeout, and counts.
3. The loop is watched: a tick every few milliseconds, and each tick that came late stands for those that it swallowed.
4. Asked to stop (Ctrl-C), it ends what is under way as *not measured*, and gives what it has.
"""

import asyncio
import gc
import resource
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stoker.base import clock
from stoker.bench.load.answer import text_of
from stoker.bench.load.render import TOOL
from stoker.bench.load.script import Script
from stoker.bench.load.shot import Shot
from stoker.bench.load.talk import Ask, Style, Talk
from stoker.bench.load.target import Target
from stoker.decide.measure.sample import OUT_OF_REACH, Sample
from stoker.decide.measure.summary import Taken
from stoker.facts.ending import Ending, Outcome
from stoker.http1.pool import Pool
from stoker.wire import pairs
from stoker.wire.pairs import Pair
from stoker.wire.request import Asked

_TICK: Final = 0.005
_SWEEP: Final = 0.1
_SPARE_FILES: Final = 64
_TALKS: Final = 8192  # sessions that are kept at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    window: float
    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 120.0
    requests: int = 0  # then it ends; 0: when the window does
    deadline: Callable[[Ask], float] | None = None  # after which a request is given up once the window has ended


@dataclass(slots=True)
class Progress:
    """What a person may see while it goes on."""

    seconds: float = 0.0
    sent: int = 0
    ended: int = 0
    good: int = 0
    in_flight: int = 0
    tokens: int = 0
    recent: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a step is called in the report."""

    value: float
    unit: str
    seed: int


class Generator:
    """One step. Made anew for each; the target's connections are, too."""

    def __init__(self, target: Target, style: Style, script: Script, limits: Limits, *, model_answers: bool) -> None:
        self._style = style
        self._script = script
        self._limits = limits
        self._answers = model_answers
        self._pool = Pool(target.origin, tls=target.tls())
        self._head = target.head()
        self._pair = Pair(client=target.dialect, upstream=target.dialect)
        offered = msgspec.Raw(b'[{"name":"%b"}]' % TOOL.encode()) if style.tools else msgspec.Raw(b"")
        self._asked = Asked(model=target.model, tools=offered)
        self._talks: dict[int, Talk] = {}
        self._flying: set[Shot] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._samples: list[Sample] = []
        self._gaps = array("d")
        self._lags = array("d")
        self._changed = asyncio.Event()
        self._stopped = False
        self._begun = self._end = 0.0
        self._trouble = ""
        self._most = max(16, _open_files() - _SPARE_FILES)
        self.progress = Progress()

    def stop(self) -> None:
        """End now, and keep what was measured."""
        self._stopped = True
        self._changed.set()

    async def play(self, load: Load) -> Taken:
        """Send the script and bring back what came of it."""
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        with _quiet():
            self._begun = clock.mono()
            self._end = self._begun + self._limits.window
            async with asyncio.TaskGroup() as group:
                watching = [group.create_task(self._tick()), group.create_task(self._sweep())]
                await self._send()
                await self._drain()
                for task in watching:
                    task.cancel()
        self._pool.close()
        after = resource.getrusage(resource.RUSAGE_SELF)
        lasted = min(self._limits.window, clock.mono() - self._begun)
        return Taken(
            load=load.value,
            unit=load.unit,
            seed=load.seed,
            seconds=lasted,
            samples=tuple(self._samples),
            gaps_seconds=self._gaps,
            loop_lags_seconds=self._lags,
            cpu_seconds=after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime,
            interrupted=self._stopped,
            trouble=self._trouble,
        )

    # Sending.

    async def _send(self) -> None:
        for at, ask in self._script.begin():
            due = self._begun + at
            if self._over() or due >= self._end:
                break
            body = self._body(ask)
            await asyncio.sleep(max(0.0, due - clock.mono()))  # 0 too: who is late must still hear the answers
            if self._over():
                break
            self._fire(ask, body, due)

    def _over(self) -> bool:
        most = self._limits.requests
        return self._stopped or (most > 0 and self.progress.sent >= most)

    def _body(self, ask: Ask) -> tuple[bytes, ...]:
        talk = self._talks.get(ask.session)
        if talk is None:
            if len(self._talks) >= _TALKS:
                del self._talks[next(iter(self._talks))]
            talk = self._talks[ask.session] = Talk(self._style, ask.session)
        body = talk.body(ask)
        return (self._head + b"%d\r\n\r\n" % len(body), body)

    def _fire(self, ask: Ask, body: tuple[bytes, ...], due: float) -> None:
        if len(self._flying) >= self._most:
            self._trouble = f"more than {self._most} requests in flight: this machine may open no more connections"
            self.stop()
            return
        self.progress.sent += 1
        number = self.progress.sent
        call = pairs.Call(id=f"{number}", stream=True)
        speaks = pairs.voice(self._pair.client, self._asked, call=call)
        follow = pairs.follower(self._pair, self._asked, call=call, speaks=speaks)
        shot = Shot(ask, follow, number=number, scheduled=due, done=self._done, keep=self._answers)
        shot.talk = self._talks.get(ask.session)
        shot.body = body
        shot.retry = self._again
        give_up = self._limits.deadline
        shot.deadline = due + give_up(ask) if give_up is not None else float("inf")
        self._flying.add(shot)
        shot.sent_at = clock.mono()
        shot.call = self._pool.send(shot, body, connect=self._limits.connect)

    def _again(self, shot: Shot) -> None:
        shot.call = self._pool.send(shot, shot.body, connect=self._limits.connect, fresh=True)

    def _done(self, shot: Shot) -> None:
        self._flying.discard(shot)
        sample = shot.sample(self._begun)
        self._samples.append(sample)
        self._gaps.extend(shot.gaps)
        if self._answers and sample.good and shot.stream and shot.talk is not None:
            tokens = sample.tokens
            shot.talk.heard(shot.ask.turn, text_of(b"".join(shot.rest)), tokens.output - tokens.reasoning)
        shot.rest.clear()
        shot.body = ()
        shot.call = None
        seen = self.progress
        seen.ended += 1
        seen.good += sample.good
        seen.tokens += sample.tokens.output
        seen.recent.append(sample)
        following = None if self._stopped else self._script.after(shot.ask)
        if following is not None:
            self._later(following, clock.mono() + following.gap_seconds)
        if not self._flying:
            self._changed.set()

    def _later(self, ask: Ask, due: float) -> None:
        """Send what a client asks next; its body is made while it thinks."""
        if due >= self._end or self._over():
            return
        if ask.gap_seconds <= 0:
            self._fire(ask, self._body(ask), due)
            return
        body = self._body(ask)

        def fire() -> None:
            self._timers.discard(timer)
            if not self._over():
                self._fire(ask, body, due)
            self._changed.set()

        timer = asyncio.get_running_loop().call_later(max(0.0, due - clock.mono()), fire)
        self._timers.add(timer)

    # Waiting.

    async def _drain(self) -> None:
        """Wait until nothing is under way and nothing more will come; what is stopped ends at once."""
        while (self._flying or self._timers) and not self._stopped:
            self._changed.clear()
            await self._changed.wait()
        for timer in self._timers:
            timer.cancel()
        for shot in list(self._flying):
            shot.cut(None)

    async def _sweep(self) -> None:
        """End what takes too long, and tell how far we are."""
        limits = self._limits
        while True:
            await asyncio.sleep(_SWEEP)
            now = clock.mono()
            self._pool.sweep(now)
            for shot in list(self._flying):
                detail = _expired(shot, limits, now=now, over=now >= self._end)
                if detail:
                    shot.cut(Ending(outcome=Outcome.TIMEOUT, detail=detail))
            self.progress.seconds = now - self._begun
            self.progress.in_flight = len(self._flying)

    async def _tick(self) -> None:
        due = clock.mono() + _TICK
        lags = self._lags
        while True:
            await asyncio.sleep(max(0.0, due - clock.mono()))
            now = clock.mono()
            late = max(0.0, now - due)
            lags.append(late)
            while late > _TICK:  # the ticks that did not happen would have been late, too
                late -= _TICK
                lags.append(late)
            due = now + _TICK


def _expired(shot: Shot, limits: Limits, *, now: float, over: bool) -> str:
    """Say which limit a request has passed."""
    if not shot.head_at:
        return "first_byte" if now - shot.sent_at > limits.first_byte else _late(shot, now=now, over=over)
    if now - shot.heard_at > limits.idle:
        return "idle"
    return _late(shot, now=now, over=over)


def _late(shot: Shot, *, now: float, over: bool) -> str:
    return OUT_OF_REACH if over and now > shot.deadline else ""


def _open_files() -> int:
    """Allow as many files as the machine lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    return max(soft, want)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the garbage collector away: one look at a million objects is a stall of its own."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
