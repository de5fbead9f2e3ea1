"""Which engines does a state directory still have, and how are they ended when no controller is there to do it?"""

import asyncio
from pathlib import Path

from stoker.base import clock
from stoker.drivers.hosts.local import LocalHost
from stoker.facts.observed import Phase

GRACE_SECONDS = 10.0


async def living(host: LocalHost) -> list[str]:
    """Name the attempts that have a process. Raises Driver."""
    return [seen.run.name for seen in await host.list() if seen.phase not in (Phase.EXITED, Phase.LOST)]


def stop_all(root: Path) -> tuple[int, list[str]]:
    """End every engine; tells how many there were, and names those that do not end. Raises Driver."""
    return asyncio.run(_stop_all(LocalHost(root)))


async def _stop_all(host: LocalHost) -> tuple[int, list[str]]:
    until = clock.mono() + GRACE_SECONDS + 5.0
    found: set[str] = set()
    while True:
        running = await living(host)
        found |= set(running)
        if not running or clock.mono() > until:
            return len(found), running
        for name in running:
            await host.stop(name, grace=GRACE_SECONDS)
        await asyncio.sleep(0.1)
