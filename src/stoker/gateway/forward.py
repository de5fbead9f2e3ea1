"""How does an admitted request get its answer? Wait for a slot, call an endpoint, follow its answer, write the record.

The order at the end is fixed: the record is in the spool before the terminator is handed to the transport. Every way
out goes through ``_settle``, which acts once: it writes the record and gives slot and limits back.
"""

import random
from typing import Final

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.decide.admit import Verdict, admit, retry_after
from stoker.decide.deadline import late
from stoker.decide.route import Why, route
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Times
from stoker.gateway.answer import Answer
from stoker.gateway.body import Body
from stoker.gateway.fleet import ServiceState, Upstream
from stoker.gateway.house import House
from stoker.gateway.identity import Grant
from stoker.gateway.relay import Relay
from stoker.gateway.ticket import NO_GAPS, NO_TOKENS, Ticket, rejected
from stoker.gateway.troubles import (
    CUT,
    NO_CONNECTION,
    NO_SLOT,
    NOBODY,
    STOPPING,
    TOO_LARGE,
    UNACCOUNTED,
    UNREACHABLE,
    Trouble,
    failed,
    overdue,
)
from stoker.http1.pool import Call, End
from stoker.wire.follower import Follower

_MAX_ATTEMPTS: Final = 3
# A tuple: `in` compares by identity first, while a set calls the enum's hash in Python.
_ANSWERED: Final = (Outcome.COMPLETE, Outcome.LENGTH, Outcome.TOOL_CALLS, Outcome.REFUSAL)
_draw = random.Random().random  # noqa: S311 -- spreads load; nothing secret hangs on it


class Forward:
    """One request on its way from admission to its record."""

    __slots__ = (
        "_answer",
        "_asked_at",
        "_body",
        "_call",
        "_failed",
        "_follow",
        "_house",
        "_relay",
        "_reserved",
        "_row",
        "_service",
        "_settled",
        "_shared",
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
        self._relay = Relay(answer, aggregate=body.aggregate)
        self._follow: Follower | None = None  # of the try that runs, or of the last one
        self._call: Call | None = None
        self._up: Upstream | None = None
        self._shared = False
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
            self._shared = self._up.counted
            self._dispatch()
            return
        why = self._take()
        if why is None:
            self._dispatch()
        elif why is Why.NONE:
            self._fail(NOBODY, rejected("no_endpoint"))
        elif admit(free=False, waiting=service.waiting, room=service.room) is Verdict.REFUSE:
            after = retry_after(waiting=service.waiting, slots=service.slots, mean=service.mean)
            trouble = Trouble(status=NO_SLOT.status, code=NO_SLOT.code, message=NO_SLOT.message, retry_after=after)
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
        choice = route(
            targets,
            fleet.upstreams,
            now=clock.mono(),
            draw=_draw(),
            failed=self._failed,
            key=self.ticket.key,
            turn=service.in_turn() if service.spec.policy == "RoundRobin" else -1,
        )
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
        self._up, self._shared = up, capped or up.counted
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
        try:
            wire = self._body.wire(up, ticket)
        except Invalid as error:
            self._fail(Trouble(status=400, code="untranslatable", message=str(error)), rejected("dialect"))
            return
        self._note()
        self._follow = self._body.follower(up)
        self._relay.begin(now)
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
        relay, up, follow = self._relay, self._up, self._follow
        if follow is None:
            return
        now = clock.mono()
        out = relay.feed(follow, data, now)
        if up is not None and relay.progress == now:
            up.well(now)
        if follow.done and relay.events:
            call, self._call = self._call, None
            self._finish(follow, out, End.COMPLETE)
            if call is not None:
                call.release()
        elif relay.too_big:
            self._drop_call()
            self._fail(TOO_LARGE, failed(502))
        elif out and not self._settled:
            self._answer.send(out, now)

    def up_end(self, end: End, *, stale: bool) -> None:
        """Finish, or try again while the engine has said nothing."""
        self._call = None
        if self._settled:
            return
        if stale:
            self._dispatch(fresh=True)
        elif self._relay.status and self._follow is not None:
            self._finish(self._follow, b"", end)
        else:
            self._unanswered(end)

    def _unanswered(self, end: End) -> None:
        up, now = self._up, clock.mono()
        if up is not None:
            up.fault(now)
        if self._may_retry() and self._others():
            self._again()
        elif end is End.TIMEOUT:
            self._fail(NO_CONNECTION, Ending(outcome=Outcome.TIMEOUT, detail="connect"))
        elif end is End.CONNECT:
            self._fail(UNREACHABLE, failed(502))
        else:
            detail = "reset" if end is End.RESET else "clean"
            self._fail(CUT, Ending(outcome=Outcome.TRUNCATED, detail=detail))

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

    def _finish(self, follow: Follower, out: bytes, end: End) -> None:
        """Write the end of an answer that has begun."""
        cut = "" if end is End.COMPLETE else "reset" if end is End.RESET else "clean"
        now = clock.mono()
        last = self._relay.last(follow, out, cut=cut, now=now)
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
        ticket, follow, house = self.ticket, self._follow, self._house
        tokens, gaps = (follow.tokens(), follow.gaps()) if follow is not None else (NO_TOKENS, NO_GAPS)
        record = ticket.record(ending, status, tokens=tokens, gaps=gaps, times=self._times())
        written = house.meter.write(record, ticket.client)
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
        ticket, follow = self.ticket, self._follow
        now = clock.mono()
        start = ticket.arrived
        if follow is None:
            return Times(queue=(ticket.dispatched or now) - start, total=now - start)
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
            up.give(shared=self._shared)
            self._shared = False

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
        self._fail(STOPPING, Ending(outcome=Outcome.TRUNCATED, detail="reset"))

    def revoke(self) -> None:
        """End now: the credential was revoked, and whoever owns it wants its open streams cut."""
        self._drop_call()
        message = "The credential of this request was revoked."
        trouble = Trouble(status=401, code="credential_revoked", message=message, kind="authentication_error")
        self._fail(trouble, Ending(outcome=Outcome.CANCELLED, detail="revoked"))

    def tick(self, now: float) -> None:
        """Look at the clock: commit, keep alive, or give up."""
        over = self._late(now)
        if over:
            self._drop_call()
            if self._up is not None:
                self._up.fault(now)
            self._fail(overdue(over), Ending(outcome=Outcome.TIMEOUT, detail=over))
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
        relay = self._relay
        return late(
            self._service.spec.timeouts,
            waited=now - self.ticket.arrived,
            asked=None if self.waiting else now - self._asked_at,
            silent=now - relay.progress if relay.started else None,
        )
