"""What does one request take on its way in, and give back at its end? The record is written here, once."""

from collections.abc import Callable
from typing import Final

from stoker.base import clock
from stoker.decide.quota import estimate
from stoker.decide.quota.level import Refusal, Verdict
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Times, Tokens
from stoker.facts.routes import Caller
from stoker.gateway.body import Body
from stoker.gateway.dialect import MESSAGES
from stoker.gateway.fleet import ServiceState
from stoker.gateway.house import House
from stoker.gateway.quota.quota import Hold
from stoker.gateway.steer.seat import Seat
from stoker.gateway.surface import allowance
from stoker.gateway.ticket import NO_GAPS, NO_TOKENS, Ticket
from stoker.gateway.troubles import POISON, UNACCOUNTED, Trouble
from stoker.wire.follower import Follower

# A tuple: `in` compares by identity first, while a set calls the enum's hash in Python.
ANSWERED: Final = (Outcome.COMPLETE, Outcome.LENGTH, Outcome.TOOL_CALLS, Outcome.REFUSAL)
Refused = tuple[Trouble, str]  # what the client is told, and the rule's name


class Account:
    """The account of one request."""

    __slots__ = ("_asks", "_go", "_hold", "_house", "_poison", "_row", "closed", "ticket")

    def __init__(self, house: House, ticket: Ticket) -> None:
        self._house = house
        self._poison = b""  # the request's mark, made only when it is needed
        self._go: Callable[[Refused | None], None] | None = None  # while the limits are asked
        self._asks: tuple[Caller, ServiceState, int] | None = None  # for a second try
        self._hold: Hold | None = None
        self._row = -1
        self.closed = False
        self.ticket = ticket

    def open(self, service: ServiceState, body: Body, go: Callable[[Refused | None], None]) -> None:
        """Ask whether the request may come in; ``go`` hears it, at once or when the store of all machines has said."""
        house, grant = self._house, self.ticket.grant
        if house.meter.refusing:
            go((UNACCOUNTED, "accounting"))
            return
        if house.again.suspicious(self.ticket.at):
            self._poison = house.again.poison_mark(self.ticket.service, body.raw)
            if house.again.poisonous(self._poison, self.ticket.at):
                go((POISON, "poison"))
                return
        if grant is None or not (grant.limited or service.limited):
            go(None)
            return
        size = self.ticket.prompt_bytes
        # Whether there are images in it is looked for only where that would change the estimate.
        opaque = size > estimate.OPAQUE_TOKENS and body.opaque
        tokens = estimate.prompt(size, service.ratio, opaque=opaque)
        tokens += service.answers.expected(body.output) * self.ticket.answers
        self._go = go
        self._asks = grant.caller, service, tokens
        house.limits.reserve(grant.caller, service.spec, tokens=tokens, done=self._limited)

    def _limited(self, verdict: Verdict, hold: Hold | None) -> None:
        """Take what the limits say; a client that has left meanwhile takes nothing."""
        go, self._go = self._go, None
        if self.closed or go is None:
            if hold is not None:
                self._house.limits.settle(hold, used=0, request=True)
            return
        ticket, refusal = self.ticket, verdict.refusal
        asks, self._asks = self._asks, None
        if refusal is not None and refusal.limit == "concurrent" and asks is not None and self._shed(refusal, asks[1]):
            self._go = go
            self._house.limits.reserve(asks[0], asks[1].spec, tokens=asks[2], done=self._limited)  # once more
            return
        self._hold = hold
        ticket.extra += allowance.fields(verdict.left, anthropic=ticket.surface is MESSAGES, now=clock.now())
        if refusal is None:
            go(None)
            return
        if not allowance.heals_soon(refusal):
            ticket.extra += allowance.STOP
        go((allowance.refused(refusal), refusal.limit))

    def _shed(self, refusal: Refusal, service: ServiceState) -> bool:
        """Make room where a model has as many requests as it may have, and one of a lower rank still waits."""
        fleet = self._house.fleet
        return refusal.model and fleet.shed(service, priority=self.ticket.priority, now=clock.mono())

    def note(self) -> None:
        """Say in the live table what runs now: a `lost` record is made of it, should this worker be killed."""
        live = self._house.live
        before, self._row = self._row, live.begin(self.ticket.in_flight())
        if before >= 0:
            live.end(before)

    def suspect(self, body: bytes) -> None:
        """Note that this request was there when its endpoint broke off, and perhaps died."""
        ticket, again = self.ticket, self._house.again
        self._poison = self._poison or again.poison_mark(ticket.service, body)
        again.suspect(ticket.endpoint, ticket.incarnation, self._poison, clock.now())

    def close(self, ending: Ending, status: int, *, follow: Follower | None, seat: Seat, asked_at: float) -> bool:
        """Write the record and give back what was taken; False when the record was refused."""
        self.closed = True
        ticket, house = self.ticket, self._house
        gaps = follow.gaps() if follow is not None else NO_GAPS
        if follow is not None and follow.repairs:
            ticket.splices = (*ticket.splices, *follow.repairs)
        tokens = self._tokens(ending, follow, seat)
        usd = _price(tokens, seat)
        times = _times(ticket, follow)
        record = ticket.record(ending, status, tokens=tokens, gaps=gaps, times=times, price_usd=usd)
        written = house.meter.write(record, ticket.client)
        house.live.end(self._row)
        hold, self._hold = self._hold, None
        if hold is not None:
            counts = ending.outcome is not Outcome.REJECTED  # what we refused ourselves was no request
            house.limits.settle(hold, used=estimate.used(tokens, ending), request=counts)
        if ending.outcome in ANSWERED:
            if self._poison:
                house.again.harmless(self._poison)
            seat.service.took(record.times.total + ticket.arrived - asked_at)
            _learn(seat.service, ticket, tokens)
        return written

    def _tokens(self, ending: Ending, follow: Follower | None, seat: Seat) -> Tokens:
        """Count what was used; a prompt that an engine read and did not count is estimated, and the record says so."""
        tokens = follow.tokens() if follow is not None else NO_TOKENS
        ticket = self.ticket
        if tokens.prompt or not ticket.attempts:
            return tokens
        guess = estimate.prompt(ticket.prompt_bytes, seat.service.ratio)
        return estimate.completed(tokens, ending, dispatched=True, estimate=guess)


def _price(tokens: Tokens, seat: Seat) -> float | None:
    price = seat.up.spec.price if seat.up is not None else None
    if price is None or not (tokens.prompt or tokens.output):
        return None
    return price.of(prompt=tokens.prompt, cached=tokens.cached, output=tokens.output)


def _learn(service: ServiceState, ticket: Ticket, tokens: Tokens) -> None:
    if tokens.prompt and not tokens.estimated:
        service.ratio.learn(ticket.prompt_bytes, tokens.prompt)
    if tokens.output:
        service.answers.learn(tokens.output // ticket.answers)


def _times(ticket: Ticket, follow: Follower | None) -> Times:
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
