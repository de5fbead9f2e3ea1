"""Where does one request sit: at which endpoint, in the queue, or nowhere? Whatever was taken is given back once."""

import random
from typing import Final

from stoker.base import clock
from stoker.decide.admit import Verdict, admit, retry_after
from stoker.decide.route import Why, route
from stoker.gateway.fleet import Fleet, ServiceState, Upstream
from stoker.gateway.steer.again import Again
from stoker.gateway.ticket import Ticket
from stoker.gateway.troubles import NO_SLOT, Trouble

_draw = random.Random().random  # noqa: S311 -- spreads load; nothing secret hangs on it
_MAX_ATTEMPTS: Final = 3
_IN_TURN: Final = "RoundRobin"
_FULL, _NONE = Why.FULL, Why.NONE  # each request compares them


class Seat:
    """The place of one request."""

    __slots__ = ("_fleet", "_queued", "_shared", "failed", "service", "ticket", "up")

    def __init__(self, fleet: Fleet, service: ServiceState, ticket: Ticket) -> None:
        self._fleet = fleet
        self._shared = False  # whether the workers' table knows of the slot
        self._queued = False  # whether it has a place in the queue
        self.service = service
        self.ticket = ticket
        self.up: Upstream | None = None
        self.failed: tuple[str, ...] = ()  # endpoints that this request has failed on

    def probe(self, endpoint: str) -> Upstream:
        """Sit at a named endpoint, whatever its state and its cap: a probe must get through."""
        up = self._fleet.upstreams[endpoint]
        up.take(capped=False)
        self.up, self._shared = up, up.counted
        return up

    def take(self, *, queued: bool = False) -> Why | None:
        """Take a slot at the best endpoint; the reason why not, or None. ``queued``: it is this request's turn."""
        service = self.service
        choice = route(
            service.targets.get(self.ticket.dialect, ()),
            self._fleet.upstreams,
            now=clock.mono(),
            draw=_draw(),
            failed=(*self.failed, *self._without()) if self.ticket.adapter else self.failed,
            key=self.ticket.key,
            turn=service.in_turn() if service.spec.policy == _IN_TURN else -1,
        )
        why = choice.why
        if why is _NONE:
            return why
        free = why is not _FULL
        if service.queue and not queued:  # whoever waits already has the first claim
            free = admit(free=free, waiting=service.waiting, room=0) is Verdict.RUN
        up = self._fleet.upstreams[choice.endpoint]
        capped = up.slots > 0
        if not free or not up.take(capped=capped):
            return _FULL
        self.up, self._shared = up, capped or up.counted
        if self._queued:
            self._leave_queue()
        return None

    def _without(self) -> list[str]:
        """Name the endpoints that do not carry the adapter which was asked for."""
        upstreams, adapter = self._fleet.upstreams, self.ticket.adapter
        named = (name for target in self.service.spec.targets for name in target.endpoints if name in upstreams)
        return [name for name in named if adapter not in upstreams[name].spec.models]

    def no_room(self) -> Trouble | None:
        """Take a place in the queue, perhaps from somebody of a lower rank; else say when to come back."""
        if self._queue():
            return None
        shed = self._fleet.shed(self.service, priority=self.ticket.priority, now=clock.mono())
        return None if shed and self._queue() else self.crowded(NO_SLOT)

    def crowded(self, trouble: Trouble) -> Trouble:
        """Add when to come back."""
        service = self.service
        after = retry_after(waiting=service.waiting, slots=service.slots, mean=service.mean)
        return Trouble(status=trouble.status, code=trouble.code, message=trouble.message, retry_after=after)

    def _queue(self) -> bool:
        service = self.service
        if admit(free=False, waiting=service.waiting, room=service.room) is not Verdict.WAIT:
            return False
        self._queued = self._fleet.queue(service.spec)
        return self._queued

    def _leave_queue(self) -> None:
        if self._queued:
            self._queued = False
            self._fleet.leave_queue(self.service.spec)

    def renew(self) -> None:
        """Take the service as it is now: routes may have changed while this request waited."""
        self.service = self._fleet.services.get(self.service.spec.name, self.service)

    def may_retry(self, again: Again) -> bool:
        """Whether to try another endpoint: nothing of an engine was sent on, there is one, time and budget are left."""
        ticket = self.ticket
        return (
            ticket.probe is None
            and ticket.attempts < _MAX_ATTEMPTS
            and clock.mono() - ticket.dispatched < self.service.spec.timeouts.first_byte
            and self.others()
            and again.may_retry(ticket.service, clock.now())
        )

    def others(self) -> bool:
        """Whether another endpoint may serve than the one that has just failed."""
        up = self.up
        failed = (*self.failed, up.spec.name) if up is not None else self.failed
        if self.ticket.adapter:
            failed = (*failed, *self._without())
        targets = self.service.targets.get(self.ticket.dialect, ())
        choice = route(targets, self._fleet.upstreams, now=clock.mono(), draw=0.0, failed=failed)
        return choice.why is not Why.NONE

    def leave_failed(self) -> None:
        """Leave an endpoint for good."""
        if self.up is not None:
            self.failed = (*self.failed, self.up.spec.name)
        self.give()

    def give(self) -> None:
        """Give the slot back, or the place in the queue."""
        if self._queued:
            self._leave_queue()
        up, self.up = self.up, None
        if up is not None:
            up.give(shared=self._shared)
            self._shared = False
