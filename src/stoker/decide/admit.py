"""May this request run now, must it wait, or is it refused?

1. An engine never gets more requests than it has slots: some queue without bound, and a queue inside an engine can
   neither be seen nor left.
2. What finds no slot waits here, bounded; the higher priority goes first, then who came first.
3. What finds no room to wait is told when to come back: never in less than a second nor in more than thirty.
4. Every call has an output cap: the lowest of what the service, the caller and the client say.
"""

from enum import StrEnum
from math import ceil

RETRY_LEAST = 1
RETRY_MOST = 30


class Verdict(StrEnum):
    """What happens to a request."""

    RUN = "run"
    WAIT = "wait"
    REFUSE = "refuse"


def admit(*, free: bool, waiting: int, room: int) -> Verdict:
    """Decide about a new request; ``room`` is how many may wait. A free slot belongs to those who wait already."""
    if free and not waiting:
        return Verdict.RUN
    return Verdict.WAIT if waiting < room else Verdict.REFUSE


def retry_after(*, waiting: int, slots: int, mean: float) -> int:
    """Guess in whole seconds when a slot will be free for somebody who comes back; ``mean`` is one answer's time."""
    guess = ceil((waiting + 1) * mean / max(1, slots))
    return max(RETRY_LEAST, min(RETRY_MOST, guess))


def output_cap(*, service: int, caller: int) -> int:
    """Find the most output tokens that one call may ask for; 0 means that nobody set a limit."""
    if service <= 0 or caller <= 0:
        return max(service, caller, 0)
    return min(service, caller)


def rank(*, priority: int, arrival: int) -> tuple[int, int]:
    """Order those who wait: the smallest first."""
    return (-priority, arrival)
