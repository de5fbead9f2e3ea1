"""How does an admitted request get its answer? Wait for a slot, call an endpoint, follow its answer, write the record.

The order at the end is fixed: the record is in the spool before the terminator is handed to the transport. Every way
out goes through ``_settle``, which acts once: it writes the record and gives slot and limits back.
"""

import random
from typing import Final

from stoker.base import clock
from stoker.decide.admit import Verdict, admit, retry_after
from stoker.decide.route import Why, route
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Times
from stoker.gateway.answer import UNACCOUNTED, Answer, Trouble
from stoker.gateway.body import Body
from stoker.gateway.fleet import ServiceState, Upstream
from stoker.gateway.house import House
from stoker.gateway.identity import Grant
from stoker.gateway.relay import Relay
from stoker.gateway.ticket import Ticket, rejected
from stoker.http1.pool import Call, End

_MAX_ATTEMPTS: Final = 3
# A tuple: `in` compares by identity first, while a set calls the enum's hash in Python.
_ANSWERED: Final = (Outcome.COMPLETE, Outcome.LENGTH, Outcome.TOOL_CALLS, Outcome.REFUSAL)
_draw = random.Random().random  # noqa: S311 -- spreads load; nothing secret hangs on it
_NO_SLOT: Final = Trouble(status=429, code="queue_full", message="All slots are taken and the queue is full.")
_NOBODY: Final = Trouble(
    status=503, code="no_endpoint", message="No endpoint of this model can serve right now.", retry_after=5
)


class Forward:
    """One request on its way from admission to its record."""

    __slots__ = (
        "_answer",
        "_asked_at",
        "_body",
        "_call",
        "_capped",
        "_failed",
        "_house",
        "_relay",
        "_reserved",
        "_row",
        "_service",
        "_settled",
        "_up",
        "ticket",
        "waiting",
    )

    def __init__(self, house: House, ticket: Ticket, service: ServiceState, *, answer: Answer, body: Body) -> None:
        self._house = house
        self.ticket = ticket
        self._service = service
        self._answer = answer
        self._body = body
        self._relay = Relay(answer, strip_usage=body.strip_usage, aggregate=body.aggregate)
        self._call: Call | None = None
        self._up: Upstream | None = None
        self._capped = False
        self._failed: tuple[str, ...] = ()
        self._reserved = -1
        self._row = -1
        self._settled = False
        self._asked_at = 0.0
        self.waiting = False

    def begin(self) -> None:
        """Reserve the caller's share, then run, wait or be refused."""
        self.ticket.exchange.listener = self
        self._house.active.add(self)
        if self._house.meter.refusing:
            self._fail(UNACCOUNTED, rejected("accounting"))
        elif self.ticket.grant is None or not self.ticket.grant.limited or self._reserve(self.ticket.grant):
            self._place()

    def _reserve(self, grant: Grant) -> bool:
        tokens = self.ticket.prompt_bytes // 4
        refusal = self._house.limits.reserve(grant.caller.name, grant.caller.limits, tokens=tokens, now=clock.now())
        if refusal is None:
            self._reserved = tokens
            return True
        trouble = Trouble(
            status=429,
            code="rate_limit_exceeded",
            message=f"The limit {refusal.limit} of {refusal.allowed} is reached.",
            retry_after=max(1, min(60, round(refusal.retry_after + 0.5))),
        )
        self._fail(trouble, rejected(refusal.limit))
        return False

    def _place(self) -> None:
        """Find an endpoint for a new request, or for one whose endpoint has failed."""
        service, ticket = self._service, self.ticket
        if ticket.probe is not None:
            self._up = self._house.fleet.upstreams[ticket.probe[0]]
            self._up.take(capped=False)
            self._dispatch()
            return
        why = self._take()
        if why is None:
            self._dispatch()
        elif why is Why.NONE:
            self._fail(_NOBODY, rejected("no_endpoint"))
        elif admit(free=False, waiting=service.waiting, room=service.room) is Verdict.REFUSE:
            after = retry_after(waiting=service.waiting, slots=service.slots, mean=service.mean)
            trouble = Trouble(status=_NO_SLOT.status, code=_NO_SLOT.code, message=_NO_SLOT.message, retry_after=after)
            self._fail(trouble, rejected("queue"))
        else:
            self.waiting = True
            self._note()
            priority = ticket.grant.caller.priority if ticket.grant is not None else 0
            service.wait(self, priority=priority, now=clock.mono())

    def _take(self, *, queued: bool = False) -> Why | None:
        """Take a slot at the best endpoint; the reason why not, or None."""
        fleet, service = self._house.fleet, self._service
        targets = service.targets.get(self.ticket.dialect, ())
        choice = route(targets, fleet.upstreams, now=clock.mono(), draw=_draw(), failed=self._failed)
        why = choice.why
        if why is Why.NONE:
            return why
        if service.queue and not queued:  # whoever waits already has the first claim
            free = admit(free=why is not Why.FULL, waiting=service.waiting, room=0) is Verdict.RUN
        else:
            free = why is not Why.FULL
        up = fleet.upstreams[choice.endpoint]
        capped = up.slots > 0
        if not free or not up.take(capped=capped):
            return Why.FULL
        self._up, self._capped = up, capped
        return None

    def wake(self) -> bool:
        """Try to run now; False: there is still no slot."""
        self._service = self._house.fleet.services.get(self._service.spec.name, self._service)
        if self._take(queued=True) is not None:
            return False
        self.waiting = False
        self._dispatch()
        return True

    def _note(self) -> None:
        live = self._house.live
        before, self._row = self._row, live.begin(self.ticket.in_flight())
        if before >= 0:
            live.end(before)

    def _dispatch(self, *, fresh: bool = False) -> None:
        up, ticket = self._up, self.ticket
        if up is None:
            return
        now = clock.mono()
        ticket.endpoint, ticket.incarnation = up.spec.name, up.spec.incarnation
        ticket.attempts += 1
        ticket.dispatched = ticket.dispatched or now
        self._asked_at = now
        wire = self._body.wire(up, ticket)
        self._note()
        if ticket.attempts > 1:
            self._relay.reset(now)
        self._relay.progress = now
        self._call = up.pool.send(self, wire, connect=self._service.spec.timeouts.connect, fresh=fresh)

    # What the connection to the endpoint reports.

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the engine's status; an overloaded engine may have a neighbour."""
        ticket = self.ticket
        ticket.first_byte = ticket.first_byte or clock.mono()
        if status == 503 and self._may_retry() and self._others():
            self._drop_call()
            self._again()
            return
        self._relay.head(status, headers)

    def up_body(self, data: bytes) -> None:
        """Forward what one read brought."""
        relay, up = self._relay, self._up
        now = clock.mono()
        out = relay.feed(data, now)
        if up is not None and relay.progress == now:
            up.well(now)
        if relay.follow.done and relay.events:
            call, self._call = self._call, None
            self._finish(out, End.COMPLETE)
            if call is not None:
                call.release()
        elif relay.too_big:
            self._drop_call()
            self._fail(_trouble(502, "upstream_too_large", "The engine's answer is too large."), _error(502))
        elif out and not self._settled:
            self._answer.send(out, now)

    def up_end(self, end: End, *, stale: bool) -> None:
        """Finish, or try again while the engine has said nothing."""
        self._call = None
        if self._settled:
            return
        if stale:
            self._dispatch(fresh=True)
        elif self._relay.status:
            self._finish(b"", end)
        else:
            self._unanswered(end)

    def _unanswered(self, end: End) -> None:
        up, now = self._up, clock.mono()
        if up is not None:
            up.fault(now)
        if self._may_retry() and self._others():
            self._again()
        elif end is End.TIMEOUT:
            trouble = _trouble(504, "upstream_timeout", "The engine could not be reached in time.", "timeout_error")
            self._fail(trouble, Ending(outcome=Outcome.TIMEOUT, detail="connect"))
        elif end is End.CONNECT:
            self._fail(_trouble(502, "upstream_unreachable", "The engine could not be reached."), _error(502))
        else:
            detail = "reset" if end is End.RESET else "clean"
            self._fail(_cut(), Ending(outcome=Outcome.TRUNCATED, detail=detail))

    def _may_retry(self) -> bool:
        """Whether another try is allowed: nothing of an engine was sent on, and time is left."""
        limit = self._service.spec.timeouts.first_byte
        return (
            self.ticket.probe is None
            and self.ticket.attempts < _MAX_ATTEMPTS
            and clock.mono() - self.ticket.dispatched < limit
        )

    def _others(self) -> bool:
        up = self._up
        failed = (*self._failed, up.spec.name) if up is not None else self._failed
        targets = self._service.targets.get(self.ticket.dialect, ())
        choice = route(targets, self._house.fleet.upstreams, now=clock.mono(), draw=0.0, failed=failed)
        return choice.why is not Why.NONE

    def _again(self) -> None:
        if self._up is not None:
            self._failed = (*self._failed, self._up.spec.name)
        self._give()
        self._place()

    # The end.

    def _finish(self, out: bytes, end: End) -> None:
        """Write the end of an answer that has begun."""
        cut = "" if end is End.COMPLETE else "reset" if end is End.RESET else "clean"
        now = clock.mono()
        last = self._relay.last(out, cut=cut, now=now)
        if self._up is not None and last.ending.outcome is Outcome.TRUNCATED:
            self._up.fault(now)
        if not self._settle(last.ending, last.status) and last.ending.outcome in _ANSWERED:
            self._answer.fail(UNACCOUNTED)
        else:
            last.write()

    def _fail(self, trouble: Trouble, ending: Ending) -> None:
        """End without an answer, or in the middle of one."""
        self.waiting = False
        self._settle(ending, 200 if self._answer.committed else trouble.status)
        self._answer.fail(trouble)

    def _settle(self, ending: Ending, status: int) -> bool:
        """Write the record and give everything back, once; False when the record was refused."""
        if self._settled:
            return True
        self._settled = True
        ticket, follow, house = self.ticket, self._relay.follow, self._house
        tokens = follow.tokens()
        record = ticket.record(ending, status, tokens=tokens, gaps=follow.gaps(), times=self._times())
        written = house.meter.write(record)
        house.live.end(self._row)
        house.active.discard(self)
        ticket.exchange.listener = None
        if self._reserved >= 0 and ticket.grant is not None:
            caller = ticket.grant.caller
            used = tokens.prompt + tokens.output if tokens.prompt or tokens.output else self._reserved
            used = 0 if ending.outcome is Outcome.REJECTED else used
            house.limits.settle(caller.name, caller.limits, reserved=self._reserved, used=used, now=clock.now())
        if ending.outcome in _ANSWERED:
            self._service.took(record.times.total + ticket.arrived - self._asked_at)
        self._give()
        return written

    def _times(self) -> Times:
        ticket, follow = self.ticket, self._relay.follow
        now = clock.mono()
        start = ticket.arrived
        return Times(
            queue=(ticket.dispatched or now) - start,
            first_byte=ticket.first_byte and ticket.first_byte - start,
            first_token=follow.first_token_at and follow.first_token_at - start,
            first_visible=follow.first_visible_at and follow.first_visible_at - start,
            last=follow.last_token_at and follow.last_token_at - start,
            total=now - start,
        )

    def _give(self) -> None:
        up, self._up = self._up, None
        if up is not None:
            up.give(capped=self._capped)
            self._capped = False

    def _drop_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.abort()

    # What the client's connection and the clock report.

    def client_gone(self) -> None:
        """Stop the engine at once, and say in the record that the client left."""
        self.waiting = False
        self._drop_call()
        self._settle(Ending(outcome=Outcome.CANCELLED), 200 if self._answer.committed else 499)

    def pause(self) -> None:
        """Stop reading from the engine: the client is slow."""
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        """Read on."""
        if self._call is not None:
            self._call.resume()

    def expire(self) -> None:
        """End now: the worker stops and the drain limit is over."""
        self._drop_call()
        trouble = _trouble(
            503, "gateway_stopping", "The gateway is stopping and the answer took longer than its drain."
        )
        self._fail(trouble, Ending(outcome=Outcome.TRUNCATED, detail="reset"))

    def tick(self, now: float) -> None:
        """Look at the clock: commit, keep alive, or give up."""
        late = self._late(now)
        if late:
            self._drop_call()
            if self._up is not None:
                self._up.fault(now)
            trouble = _trouble(504, "upstream_timeout", f"The {late} limit is over.", "timeout_error")
            self._fail(trouble, Ending(outcome=Outcome.TIMEOUT, detail=late))
            return
        answer, routes = self._answer, self._house.fleet.routes
        if not answer.streams:
            return
        if not answer.committed:
            if now - self.ticket.arrived >= routes.commit_after and not self._relay.failing:
                answer.commit(now)
        elif now - answer.wrote_at >= routes.keep_alive:
            answer.keep_alive(now)

    def _late(self, now: float) -> str:
        """Name the time limit that is over."""
        limits, relay = self._service.spec.timeouts, self._relay
        if self.waiting:
            return "first_byte" if now - self.ticket.arrived > limits.first_byte else ""
        if limits.request is not None and now - self.ticket.arrived > limits.request:
            return "max_generation"
        if limits.max_generation is not None and now - self._asked_at > limits.max_generation:
            return "max_generation"
        if relay.started:
            return "idle" if now - relay.progress > limits.idle else ""
        return "first_byte" if now - self._asked_at > limits.first_byte else ""


def _trouble(status: int, code: str, message: str, kind: str = "") -> Trouble:
    return Trouble(status=status, code=code, message=message, kind=kind)


def _cut() -> Trouble:
    return _trouble(502, "upstream_truncated", "The engine's answer broke off.", "upstream_error")


def _error(status: int) -> Ending:
    return Ending(outcome=Outcome.ERROR, detail=str(status))
