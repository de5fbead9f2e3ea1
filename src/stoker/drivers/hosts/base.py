"""The interface of a host: start, stop and list engine processes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stoker.facts.observed import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One attempt to run one engine. ``secret`` reaches the engine by file or environment, never by argv."""

    uid: str
    attempt: int
    spec_hash: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)  # complete: nothing is inherited but PATH, HOME, LANG
    port: int
    devices: tuple[str, ...] = ()
    secret: str = ""
    cwd: str = ""

    @property
    def name(self) -> str:
        """Name of the attempt, as in the run file."""
        return f"{self.uid}-{self.attempt}"


class Host(Protocol):
    """The hands. Every method may be repeated safely and raises only Driver."""

    async def start(self, order: Order) -> None:
        """Start an attempt and return once it is promised (run file on disk); repeating it changes nothing."""

    async def stop(self, name: str, *, grace: float) -> None:
        """Ask the attempt to end: SIGTERM now, SIGKILL to its whole subtree after ``grace`` s. Returns at once."""

    async def list(self) -> Sequence[Running]:
        """Tell every attempt that the host itself knows of, never what we last asked for."""

    def lease_port(self) -> int:
        """Pick a loopback port that no attempt has and nobody listens on; it stays leased for a start."""

    async def forget(self, name: str) -> None:
        """Remove the traces of an attempt that has exited (run and exit file; its log stays)."""
