"""What does every request of this worker share?"""

from dataclasses import dataclass, field
from typing import Protocol

from stoker.drivers.aside.errands import Aside
from stoker.drivers.live import Slot
from stoker.gateway.door.doorway import Doorway
from stoker.gateway.fleet import Fleet
from stoker.gateway.meter import Meter
from stoker.gateway.quota.quota import Quota
from stoker.gateway.steer.again import Again


class Active(Protocol):
    """A request that is under way."""

    def tick(self, now: float) -> None:
        """Look at the clock."""

    def expire(self) -> None:
        """End now: the worker stops."""


@dataclass(slots=True, kw_only=True)
class House:
    """The shared parts, made by the worker."""

    fleet: Fleet
    meter: Meter
    live: Slot
    limits: Quota
    salt: bytes
    door: Doorway
    again: Again
    aside: Aside
    active: set[Active] = field(default_factory=set)
