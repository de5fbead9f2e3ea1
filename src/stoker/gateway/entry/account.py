"""What does one request take on its way in, and give back at its end? The record is written here, once."""

from typing import Final

from stoker.base import clock
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Times
from stoker.gateway.house import House
from stoker.gateway.steer.seat import Seat
from stoker.gateway.ticket import NO_GAPS, NO_TOKENS, Ticket
from stoker.gateway.troubles import POISON, UNACCOUNTED, Trouble
from stoker.wire.follower import Follower

# A tuple: `in` compares by identity first, while a set calls the enum's hash in Python.
ANSWERED: Final = (Outcome.COMPLETE, Outcome.LENGTH, Outcome.TOOL_CALLS, Outcome.REFUSAL)
_BYTES_PER_TOKEN: Final = 4  # of the first estimate; what was used takes its place at the end
_MOST_SECONDS: Final = 60


class Account:
    """The account of one request."""

    __slots__ = ("_house", "_poison", "_reserved", "_row", "closed", "ticket")

    def __init__(self, house: House, ticket: Ticket) -> None:
        self._house = house
        self._poison = b""  # the request's mark, made only when it is needed
        self._reserved = -1
        self._row = -1
        self.closed = False
        self.ticket = ticket

    def open(self, body: bytes) -> tuple[Trouble, str] | None:
        """Let the request in; the trouble and the rule's name where it is refused."""
        house, grant = self._house, self.ticket.grant
        if house.meter.refusing:
            return UNACCOUNTED, "accounting"
        if house.again.suspicious(self.ticket.at):
            self._poison = house.again.poison_mark(self.ticket.service, body)
            if house.again.poisonous(self._poison, self.ticket.at):
                return POISON, "poison"
        if grant is None or not grant.limited:
            return None
        tokens = self.ticket.prompt_bytes // _BYTES_PER_TOKEN
        refusal = house.limits.reserve(grant.caller.name, grant.caller.limits, tokens=tokens, now=clock.now())
        if refusal is None:
            self._reserved = tokens
            return None
        trouble = Trouble(
            status=429,
            code="rate_limit_exceeded",
            message=f"The limit {refusal.limit} of {refusal.allowed} is reached.",
            retry_after=max(1, min(_MOST_SECONDS, round(refusal.retry_after + 0.5))),
        )
        return trouble, refusal.limit

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
        tokens, gaps = NO_TOKENS, NO_GAPS
        if follow is not None:
            tokens, gaps = follow.tokens(), follow.gaps()
            if follow.repairs:
                ticket.splices = (*ticket.splices, *follow.repairs)
        price = seat.up.spec.price if seat.up is not None else None
        usd = None
        if price is not None and tokens.output:
            usd = price.of(prompt=tokens.prompt, cached=tokens.cached, output=tokens.output)
        times = _times(ticket, follow)
        record = ticket.record(ending, status, tokens=tokens, gaps=gaps, times=times, price_usd=usd)
        written = house.meter.write(record, ticket.client)
        house.live.end(self._row)
        if self._reserved >= 0 and ticket.grant is not None:
            caller = ticket.grant.caller
            used = tokens.prompt + tokens.output if tokens.prompt or tokens.output else self._reserved
            used = 0 if ending.outcome is Outcome.REJECTED else used
            house.limits.settle(caller.name, caller.limits, reserved=self._reserved, used=used, now=clock.now())
        if ending.outcome in ANSWERED:
            if self._poison:
                house.again.harmless(self._poison)
            if tokens.prompt and not tokens.estimated:
                seat.service.ratio.learn(ticket.prompt_bytes, tokens.prompt)
            seat.service.took(record.times.total + ticket.arrived - asked_at)
        return written


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
