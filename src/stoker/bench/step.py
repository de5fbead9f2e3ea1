"""How is one step run? A loop of its own, which Ctrl-C asks to end and does not break."""

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self, TypeAlias

import uvloop

from stoker.bench.load.generator import Generator, Load, Progress
from stoker.bench.plan import Plan
from stoker.bench.reach import Reached
from stoker.decide.measure.bar import Bar
from stoker.decide.measure.summary import Taken

Tell: TypeAlias = Callable[[float, Progress], None]
_TOLD: float = 0.5


class Interrupt:
    """Hears Ctrl-C for as long as an experiment of many steps lasts: between two steps no loop is there to hear it.

    The first asks the step to end, and every step after it; the second ends the program.
    """

    def __init__(self) -> None:
        self.asked = False
        self._stop: Callable[[], None] | None = None
        self._before: signal.Handlers | int | Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def begin(self, stop: Callable[[], None]) -> None:
        """Say what ends the step that begins now; it ends at once where somebody has asked already."""
        self._stop = stop
        if self.asked:
            stop()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True
        if self._stop is not None:
            self._stop()


class Bench:
    """Runs steps against one target, one after another. No two of them send the same words."""

    def __init__(
        self,
        reached: Reached,
        plan: Plan,
        bar: Bar | None,
        *,
        tell: Tell | None = None,
        interrupt: Interrupt | None = None,
    ) -> None:
        self.reached = reached
        self.plan = plan
        self.bar = bar
        self._tell = tell
        self._interrupt = interrupt
        self._number = 0

    def run(self, level: float, seed: int) -> Taken:
        """Run one step at a level of load."""
        self._number += 1
        plan = self.plan
        made = Generator(
            self.reached.target,
            plan.style(self.reached, number=self._number),
            plan.script(level, seed),
            plan.limits(self.bar, level),
            model_answers=plan.model_answers,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._play(made, Load(value=level, unit=plan.unit.value, seed=seed)))

    async def _play(self, made: Generator, load: Load) -> Taken:
        if self._interrupt is not None:
            self._interrupt.begin(made.stop)
        else:
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, made.stop)
        telling = asyncio.create_task(self._show(made, load.value)) if self._tell is not None else None
        try:
            return await made.play(load)
        finally:
            if telling is not None:
                telling.cancel()

    async def _show(self, made: Generator, level: float) -> None:
        while self._tell is not None:
            await asyncio.sleep(_TOLD)
            self._tell(level, made.progress)
