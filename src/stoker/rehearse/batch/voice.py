"""What an engine says while it runs: the lines that a real one logs, or one live line for a person at a terminal."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from stoker.base import clock
from stoker.rehearse.batch.behind import Behind
from stoker.rehearse.batch.pages import used

_LOG_SECONDS = 10.0
_LIVE_SECONDS = 0.5


class _Now(NamedTuple):
    """How it goes since the last look, in the engine's own seconds."""

    prompt_per_second: float
    output_per_second: float
    hit_ratio: float
    idle: bool


class Voice:
    """Looks from line to line."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._before = (behind.clockwork.now, 0, 0, 0)

    def _look(self) -> _Now:
        work, gauges = self._behind.clockwork, self._behind.clockwork.machine.gauges
        now = (work.now, gauges.prompt_tokens, work.generated_tokens, gauges.hit_tokens)
        seconds, prompt, output, hit = (new - old for new, old in zip(now, self._before, strict=True))
        self._before = now
        busy = prompt or output or work.machine.running or work.machine.waiting
        seconds = max(seconds, 1e-9)
        return _Now(prompt / seconds, output / seconds, hit / prompt if prompt else 0.0, idle=not busy)

    def log(self) -> str:
        """Write the line of vLLM or of SGLang; empty while nothing goes on, as theirs."""
        found, work = self._look(), self._behind.clockwork
        if found.idle:
            return ""
        machine, share = work.machine, used(work.machine)
        if self._behind.rig.names == "sglang":
            tokens = round(share * self._behind.rig.kv_cache_tokens)
            return (
                f"Decode batch. #running-req: {machine.running}, #token: {tokens}, token usage: {share:.2f},"
                f" gen throughput (token/s): {found.output_per_second:.2f}, #queue-req: {machine.waiting},"
            )
        return (
            f"INFO [loggers.py] Engine 000: Avg prompt throughput: {found.prompt_per_second:.1f} tokens/s,"
            f" Avg generation throughput: {found.output_per_second:.1f} tokens/s, Running: {machine.running} reqs,"
            f" Waiting: {machine.waiting} reqs, GPU KV cache usage: {share:.1%},"
            f" Prefix cache hit rate: {found.hit_ratio:.1%}"
        )

    def live(self) -> str:
        """Write one line for a person."""
        found, work = self._look(), self._behind.clockwork
        machine = work.machine
        return (
            f"running {machine.running}  waiting {machine.waiting}  cache {used(machine):.0%}"
            f"  {found.output_per_second:,.0f} tokens/s out  {found.prompt_per_second:,.0f} in,"
            f" {found.hit_ratio:.0%} of them cached  preempted {machine.gauges.preemptions}"
        )


async def speak(behind: Behind, write: Callable[[str], None], *, live: bool) -> None:
    """Say it again and again. Lines are on time by our clock, whatever the speed: a log must stay readable."""
    voice, due = Voice(behind), clock.mono()
    while True:
        due += _LIVE_SECONDS if live else _LOG_SECONDS
        await asyncio.sleep(max(0.0, due - clock.mono()))
        if live:
            write(f"\r\x1b[K{voice.live()}")
        elif line := voice.log():
            write(f"{line}\n")
