"""Have all live gateway workers taken over a generation, and how busy is an endpoint?

1. Only workers that live count; a slot that was not written for three seconds is stale, and stale is unknown.
2. A drain, a revocation or a rollout step is done only when every live worker reports the generation.
3. With no worker process at all nothing can be in flight; with a stale one nothing is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stoker.facts.live import Live

STALE_AFTER: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """All gateway workers whose process is alive, as their slots show them."""

    workers: tuple[Live, ...]
    expected: int  # worker processes that are alive, slots or not

    @property
    def gone(self) -> bool:
        """No worker process is alive."""
        return self.expected == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One incarnation over all workers; None: unknown."""

    running: int
    waiting: int
    last_token_at: float


def acknowledged(gateways: Gateways, generation: int, *, now: float) -> bool:
    """Tell whether every live worker has ``generation`` or a newer one in force."""
    fresh = _fresh(gateways, now)
    return bool(fresh) and len(fresh) == gateways.expected and all(w.routes_generation >= generation for w in fresh)


def callers_acknowledged(gateways: Gateways, generation: int, *, now: float) -> bool:
    """Tell whether every live worker knows the callers of ``generation``."""
    fresh = _fresh(gateways, now)
    return bool(fresh) and len(fresh) == gateways.expected and all(w.callers_generation >= generation for w in fresh)


def load(gateways: Gateways, endpoint: str, incarnation: str, *, now: float) -> Load | None:
    """Sum one incarnation over all workers, or None when any live worker is silent."""
    fresh = _fresh(gateways, now)
    if len(fresh) != gateways.expected:
        return None
    mine = [e for w in fresh for e in w.endpoints if e.name == endpoint and e.incarnation == incarnation]
    return Load(
        running=sum(e.running for e in mine),
        waiting=sum(e.waiting for e in mine),
        last_token_at=max((e.last_token_at for e in mine), default=0.0),
    )


def _fresh(gateways: Gateways, now: float) -> Sequence[Live]:
    return [w for w in gateways.workers if now - w.at <= STALE_AFTER]
