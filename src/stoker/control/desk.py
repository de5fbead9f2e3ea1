"""What the API and the loop share: the store, the host, the folders, and the bell that wakes the loop."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from stoker.base.errors import Driver, Invalid
from stoker.base.layout import Layout
from stoker.control.evidence.questions import Questions
from stoker.control.evidence.stock import Stock
from stoker.drivers.hosts.base import Host
from stoker.drivers.ledger.sqlite import Ledger
from stoker.drivers.store.base import Event, Store


@runtime_checkable
class BackedUp(Protocol):
    """A store that can write itself to one file."""

    async def backup(self, path: Path) -> None:
        """Write a consistent copy while the store goes on."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """Everything that the rooms of the controller work with."""

    layout: Layout
    store: Store
    host: Host
    stock: Stock
    questions: Questions
    ledger: Ledger
    bell: asyncio.Event = field(default_factory=asyncio.Event)
    passes: int = 0  # made by this controller: before the first one, statuses speak of an earlier life
    callers_generation: int = 0
    routes_generation: int = 0

    def wake(self) -> None:
        """Make the loop look now instead of at its next turn."""
        self.bell.set()

    async def tell(self, event: Event) -> None:
        """Keep an event."""
        await self.store.record(event)

    async def backup(self, path: str) -> None:
        """Write the store to one file. Raises Driver where the store cannot."""
        target = Path(path)
        if await asyncio.to_thread(target.exists):
            raise Invalid(f"{path} exists already; a backup never overwrites")
        if not isinstance(self.store, BackedUp):
            raise Driver("this store has no backup of its own")
        await self.store.backup(target)
