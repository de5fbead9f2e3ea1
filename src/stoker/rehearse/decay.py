"""What becomes of an engine with time: it leaks, or it runs out of memory."""

import asyncio
from collections.abc import Callable
from typing import Final

from stoker.base import clock
from stoker.rehearse.script import Script
from stoker.rehearse.talk import die

_LOOK_SECONDS: Final = 0.2
_MOST_BYTES: Final = 1 << 30  # of a leak: enough to be seen, and nothing that hurts the machine


async def decay(script: Callable[[], Script]) -> None:
    """Leak as fast as the script says, and die when it says so. What was leaked is given back with another script."""
    leaked: list[bytearray] = []
    playing, since = script(), clock.mono()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now, current = clock.mono(), script()
        if current is not playing:
            playing, since = current, now
            leaked.clear()
        wanted = min(_MOST_BYTES, int(playing.memory_growth_bytes_per_second * (now - since)))
        held = sum(map(len, leaked))
        if wanted > held:
            leaked.append(bytearray(b"\x01") * (wanted - held))  # written to: untouched pages would cost nothing
        if playing.memory_error_after_seconds and now - since >= playing.memory_error_after_seconds:
            die("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (scripted)")
