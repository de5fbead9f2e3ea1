"""How does an admitted request get its answer? Wait for a slot, call an endpoint, follow its answer, write the record.

The order at the end is fixed: the record is in the spool before the terminator is handed to the transport. Every way
out goes through ``_settle``, which acts once: it writes the record and gives slot and limits back.
"""

import asyncio
from typing import Final

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.decide.route import Why
from stoker.decide.steer.window import Verdict as Fits
from stoker.decide.steer.window import window
from stoker.drivers.aside.errands import Errand, Told
from stoker.facts.ending import Ending, Outcome
from stoker.gateway.answer import Answer
from stoker.gateway.body import Body
from stoker.gateway.entry.account import ANSWERED, Account, Refused
from stoker.gateway.entry.mirror import reflect
from stoker.gateway.fleet import ServiceState, Upstream
from stoker.gateway.house import House
from stoker.gateway.relay import Relay
from stoker.gateway.steer.census import Census
from stoker.gateway.steer.seat import Seat
from stoker.gateway.ticket import Ticket, rejected
from stoker.gateway.troubles import (
    NOBODY,
    REVOKED,
    SHED,
    STOPPING,
    SUPERSEDED,
    UNACCOUNTED,
    Trouble,
    failed,
    overdue,
    too_long,
    unhelped,
    unreached,
    untranslatable,
)
from stoker.http1.pool import Call, End
from stoker.wire.follower import Follower

_BUSY: Final = (429, 503, 529)
_LARGE_BYTES: Final = 1 << 20
_STALE_SECONDS: Final = 0.05  # a connection that dies later than this was used: the engine had the request
_COUNT_SECONDS: Final = 2.0  # a tokeniser that takes longer is not waited for: the engine itself will decide


class Forward:
    """One request on its way from admission to its record."""

    __slots__ = (
        "_account",
        "_answer",
        "_aside",
        "_asked_at",
        "_body",
        "_call",
        "_follow",
        "_house",
        "_relay",
        "_seat",
        "ticket",
        "waiting",
    )

    def __init__(self, house: House, ticket: Ticket, service: ServiceState, *, answer: Answer, body: Body) -> None:
        self._house = house
        self.ticket = ticket
        self._seat = Seat(house.fleet, service, ticket)
        self._answer = answer
        self._body = body
        self._relay = Relay(answer, body.aggregate)
        self._follow: Follower | None = None  # of the try that runs, or of the last one
        self._call: Call | None = None
        self._aside: Census | Errand | None = None  # while an engine counts the prompt, or it is translated aside
        self._account = Account(house, ticket)
        self._asked_at = ticket.arrived
        self.waiting = False

    def begin(self) -> None:
        """Reserve the caller's share, then run, wait or be refused."""
        self.ticket.exchange.listener = self
        house, ticket = self._house, self.ticket
        if ticket.turn_mark and self._joined():
            return
        house.active.add(self)
        house.again.came(ticket.service)
        self._account.open(self._seat.service, self._body, self._opened)

    def _opened(self, refused: Refused | None) -> None:
        """Go on as the limits have decided."""
        if refused is not None:
            self._fail(refused[0], rejected(refused[1]))
            return
        if self.ticket.turn_mark:
            self._house.again.claim(self.ticket.turn_mark, self)
        if len(self._body.raw) > _LARGE_BYTES:  # reading it took its time: others first, then what is left to do
            asyncio.get_running_loop().call_soon(self._place)
        else:
            self._place()

    def _joined(self) -> bool:
        """See whether the same turn runs already; it goes on for this client, or ends."""
        earlier = self._house.again.earlier(self.ticket.turn_mark)
        if not isinstance(earlier, Forward):
            return False
        if self._seat.service.spec.duplicates == "Join" and earlier.adopt(self.ticket, self._answer, self._body):
            return True
        earlier.supersede()
        return False

    def adopt(self, ticket: Ticket, answer: Answer, body: Body) -> bool:
        """Go on for another client that asks for the same; False where the engine's answer has already begun."""
        if self._account.closed or self._relay.status or self._answer.streams is not answer.streams:
            return False
        left, unanswered = self.ticket, self._answer
        ticket.inherit(left)
        body.room = self._body.room
        self.ticket = self._seat.ticket = self._account.ticket = ticket
        self._answer = self._relay.answer = answer
        self._body = body
        if self._follow is not None and self._seat.up is not None:
            self._follow = body.follower(self._seat.up)  # what it says must have the new client's ids
        self._account.note()
        ticket.exchange.listener = self
        left.exchange.listener = None
        self._house.meter.write(left.record(Ending(outcome=Outcome.CANCELLED, detail="superseded"), 409), left.client)
        unanswered.fail(SUPERSEDED)
        return True

    def _place(self) -> None:
        """Find an endpoint for a new request, or for one whose endpoint has failed."""
        seat, ticket = self._seat, self.ticket
        if self._account.closed:  # the client left a moment ago
            return
        if ticket.probe is not None:
            seat.probe(ticket.probe[0])
            self._dispatch()
            return
        why = seat.take()
        if why is None:
            self._fit()
        elif why is Why.NONE:
            self._fail(NOBODY, rejected("no_endpoint"))
        elif (trouble := seat.no_room()) is not None:
            self._fail(trouble, rejected("queue"))
        else:
            self.waiting = True
            self._account.note()
            seat.service.wait(self, priority=ticket.priority, now=clock.mono())

    def wake(self) -> bool:
        """Try to run now; False: there is still no slot."""
        seat = self._seat
        seat.renew()
        if seat.take(queued=True) is not None:
            return False
        self.waiting = False
        self._fit()
        return True

    # Does it fit?

    def _fit(self, exact: int | None = None) -> None:
        """Dispatch what fits into the endpoint's context; in doubt the engine counts first."""
        up, ticket, body, seat = self._seat.up, self.ticket, self._body, self._seat
        if up is None:
            return
        context = up.spec.context_tokens
        if (
            not context or ticket.prompt_bytes + body.output <= context or body.opaque
        ):  # no token is shorter than a byte
            self._dispatch()
            return
        band = seat.service.ratio.band(ticket.prompt_bytes)
        found = window(band=band, context=context, output=body.output, exact=exact)
        if found.verdict is Fits.OVERFLOW:
            trouble = too_long(
                ticket.dialect, prompt=found.prompt, output=body.asked_output, context=context, sure=exact is not None
            )
            self._fail(trouble, rejected("context"))
            return
        body.room = found.output
        question = body.question(up) if found.verdict is Fits.COUNT else None
        if question is None:
            self._dispatch()
            return
        self._asked_at = clock.mono()
        self._aside = census = Census(up, self._counted)
        census.ask(question, connect=seat.service.spec.timeouts.connect)

    def _counted(self, tokens: int | None) -> None:
        """Take the engine's count; without one the engine decides."""
        self._aside = None
        self._dispatch() if tokens is None else self._fit(tokens)

    def _dispatch(self, *, fresh: bool = False) -> None:
        up, ticket = self._seat.up, self.ticket
        if up is None:
            return
        now = clock.mono()
        if len(self._body.raw) > _LARGE_BYTES and self._later(up, ticket):
            self._asked_at = now
            return
        ticket.endpoint, ticket.incarnation = up.spec.name, up.spec.incarnation
        ticket.attempts += 1
        ticket.dispatched = ticket.dispatched or now
        self._asked_at = now
        try:
            wire = self._body.wire(up, ticket)
        except Invalid as error:
            self._fail(untranslatable(str(error)), rejected("dialect"))
            return
        self._account.note()
        self._follow = self._body.follower(up)
        self._relay.begin(now)
        spec = self._seat.service.spec
        self._call = up.pool.send(self, wire, connect=spec.timeouts.connect, fresh=fresh)
        if spec.mirror is not None and ticket.attempts == 1:
            reflect(self._house, spec, ticket, self._body)

    def _later(self, up: Upstream, ticket: Ticket) -> bool:
        """Make a large body ready, and send it in another turn of the loop; False: it is ready."""
        body = self._body
        if body.heavy(up, ticket):
            self._aside = body.translate(self._house.aside, up, ticket, self._translated)
            return True
        if body.ready(up, ticket):
            return False
        asyncio.get_running_loop().call_soon(self._dispatch)
        return True

    def _translated(self, told: Told) -> None:
        self._aside = None
        if told.invalid:
            self._fail(untranslatable(told.invalid), rejected("dialect"))
        elif told.failed:
            self._fail(unhelped(told.failed), rejected("translation"))
        else:
            self._dispatch()

    # What the connection to the endpoint reports.

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the engine's status; an overloaded engine may have a neighbour."""
        ticket = self.ticket
        ticket.first_byte = ticket.first_byte or clock.mono()
        if status in _BUSY and self._seat.may_retry(self._house.again):
            self._drop_call()
            self._again()
            return
        self._relay.head(status, headers)

    def up_body(self, data: bytes) -> None:
        """Forward what one read brought."""
        relay, up, follow = self._relay, self._seat.up, self._follow
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
        elif relay.trouble is not None:
            self._drop_call()
            self._fail(relay.trouble, failed(502))
        elif out and not self._account.closed:
            self._answer.send(out, now)

    def up_end(self, end: End, *, stale: bool) -> None:
        """Finish, or try again while the engine has said nothing."""
        self._call = None
        if self._account.closed:
            return
        if stale and clock.mono() - self._asked_at < _STALE_SECONDS:
            self._dispatch(fresh=True)
        elif self._relay.status and self._follow is not None:
            self._finish(self._follow, b"", end)
        else:
            self._unanswered(end)

    def _unanswered(self, end: End) -> None:
        up, now = self._seat.up, clock.mono()
        if up is not None:
            up.fault(now)
            if end is End.CONNECT:
                self._house.again.died(up.spec.name, up.spec.incarnation, clock.now())
            elif end is not End.TIMEOUT:
                self._account.suspect(self._body.raw)
        if self._seat.may_retry(self._house.again):
            self._again()
        else:
            failure = unreached(end)
            self._fail(failure.trouble, failure.ending)

    def _again(self) -> None:
        self._seat.leave_failed()
        self._place()

    # The end.

    def _finish(self, follow: Follower, out: bytes, end: End) -> None:
        """Write the end of an answer that has begun."""
        cut = "" if end is End.COMPLETE else "reset" if end is End.RESET else "clean"
        now = clock.mono()
        last = self._relay.last(follow, out, cut=cut, now=now)
        if self._seat.up is not None and last.ending.outcome is Outcome.TRUNCATED:
            self._seat.up.fault(now)
            self._account.suspect(self._body.raw)
        if not self._settle(last.ending, last.status) and last.ending.outcome in ANSWERED:
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
        if self._account.closed:
            return True
        ticket, house, seat = self.ticket, self._house, self._seat
        written = self._account.close(ending, status, follow=self._follow, seat=seat, asked_at=self._asked_at)
        house.active.discard(self)
        if ticket.turn_mark:
            house.again.release(ticket.turn_mark, self)
        ticket.exchange.listener = None
        seat.give()
        return written

    def _drop_call(self) -> None:
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.drop()
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

    def supersede(self) -> None:
        """End now: the same turn was asked for again."""
        self._drop_call()
        self._fail(SUPERSEDED, Ending(outcome=Outcome.CANCELLED, detail="superseded"))

    def shed(self) -> None:
        """End now: somebody of a better rank takes the place in the queue."""
        self._fail(self._seat.crowded(SHED), rejected("shed"))

    def revoke(self) -> None:
        """End now: the credential was revoked, and whoever owns it wants its open streams cut."""
        self._drop_call()
        self._fail(REVOKED, Ending(outcome=Outcome.CANCELLED, detail="revoked"))

    def tick(self, now: float) -> None:
        """Look at the clock: commit, keep alive, or give up."""
        if isinstance(self._aside, Census) and now - self._asked_at > _COUNT_SECONDS:
            self._drop_call()
            self._dispatch()
        asked = None if self.waiting else now - self._asked_at
        over = self._relay.late(self._seat.service.spec.timeouts, now, waited=now - self.ticket.arrived, asked=asked)
        if over:
            self._drop_call()
            if self._seat.up is not None:
                self._seat.up.fault(now)
            self._fail(overdue(over), Ending(outcome=Outcome.TIMEOUT, detail=over))
            return
        if self._answer.streams:
            self._answer.tick(now, self._house.fleet.routes, failing=self._relay.failing)
