"""Which of several simulated engines does the gateway's own policy choose? Joins the policy with the machines."""

from collections.abc import Sequence
from random import Random
from typing import Literal, TypeAlias

from stoker.decide import route
from stoker.decide.steer import affinity
from stoker.facts.routes import Target
from stoker.predict.batching.loop import Route
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Request

Policy: TypeAlias = Literal["RoundRobin", "LeastLoad", "PrefixCache"]


class _Seen:
    """What a gateway knows of an engine: how many it has sent there that are not answered."""

    __slots__ = ("_machine", "seed")

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self.seed = affinity.seed(name)

    @property
    def serving(self) -> bool:
        """Simulated engines do not fail."""
        return True

    @property
    def running(self) -> int:
        """Requests under way there."""
        return self._machine.running + self._machine.waiting

    @property
    def slots(self) -> int:
        """No cap: the engine's own queue is what is simulated."""
        return 0

    @property
    def ejected_until(self) -> float:
        """Never."""
        return 0.0


def policy(machines: Sequence[Machine], name: Policy, rng: Random) -> Route:
    """Put machines behind a policy; sessions are the keys."""
    seen = {str(place): _Seen(machine, str(place)) for place, machine in enumerate(machines)}
    targets = (Target(endpoints=tuple(seen)),)
    turns = iter(range(1 << 62))

    def choose(request: Request, now: float) -> int:
        chosen = route.route(
            targets,
            seen,
            now=now,
            draw=rng.random(),
            key=affinity.seed(str(request.session)) if request.session and name == "PrefixCache" else 0,
            turn=next(turns) if name == "RoundRobin" else -1,
        )
        return int(chosen.endpoint)

    return choose
