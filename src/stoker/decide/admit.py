"""May this request run now, must it wait, or is it refused?

1. An engine never gets more requests than it has slots: some queue without bound, and a queue inside an engine can
   neither be seen nor left.
2. What finds no slot waits here, bounded. Who came first goes first, but people go before batches and a higher
   priority before a lower one: each is worth a head start in seconds. Nobody waits for ever behind newcomers, and the
   largest head start is less than the time that a request may wait at all.
3. What finds no room to wait is told when to come back: never in less than a second nor in more than thirty.
4. Where there is no room, a newcomer takes the place of the last in that order, if it would stand before it: batches
   are shed first, and never one that has waited out its lag.
5. Every call has an output cap: the lowest of what the service, the caller and the client say.
"""

from enum import StrEnum
from math import ceil

RETRY_LEAST = 1
RETRY_MOST = 30
INTERACTIVE_SECONDS = 120.0  # the head start of a person over a batch
POINT_SECONDS = 2.0  # of one point of priority, of which there are 100 above and below 0
Rank = tuple[float, int]


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


def rank(*, priority: int, interactive: bool, at: float, arrival: int) -> Rank:
    """Order those who wait: the smallest first. ``at``: when it came, in seconds."""
    lead = priority * POINT_SECONDS + (INTERACTIVE_SECONDS if interactive else 0.0)
    return at - lead, arrival


def sheds(newcomer: Rank, last: Rank) -> bool:
    """Tell whether a newcomer takes the place of the one that stands last."""
    return newcomer[0] < last[0]
