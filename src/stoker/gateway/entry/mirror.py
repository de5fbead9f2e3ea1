"""What would another endpoint have said? It gets a copy of some requests; what it answers is counted and dropped.

A copy never makes anybody wait: it has no retry, takes a slot only where one is free, is let go at the first trouble.
Its record names the caller ``stoker:mirror``, so that nobody is billed for it and the tokens are still accounted for.
"""

import random
from typing import Final

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.decide.deadline import late
from stoker.facts.ending import Ending, Outcome
from stoker.facts.routes import Service
from stoker.gateway.body import Body
from stoker.gateway.fleet import Upstream
from stoker.gateway.house import House
from stoker.gateway.ticket import Ticket
from stoker.http1.pool import Call, End

CALLER: Final = "stoker:mirror"
_MAX_BYTES: Final = 64 << 20
_draw = random.Random().random  # noqa: S311 -- takes a sample; nothing secret hangs on it


def reflect(house: House, service: Service, ticket: Ticket, body: Body) -> None:
    """Send a copy, if this request is one of those that get one."""
    mirror = service.mirror
    if mirror is None or ticket.probe is not None or _draw() * 100 >= mirror.percent:
        return
    upstreams = (house.fleet.upstreams.get(name) for name in mirror.endpoints)
    able = [up for up in upstreams if up is not None and up.serving and ticket.dialect in up.speaks]
    up = min(able, key=lambda one: one.running, default=None)
    if up is None or house.meter.refusing or not up.take(capped=up.slots > 0):
        return
    Copy(house, service, ticket, up).begin(body)


class Copy:
    """One copy on its way."""

    __slots__ = (
        "_asked_at",
        "_call",
        "_events",
        "_follow",
        "_house",
        "_parts",
        "_said_at",
        "_service",
        "_shared",
        "_size",
        "_status",
        "_up",
        "ticket",
    )

    def __init__(self, house: House, service: Service, ticket: Ticket, up: Upstream) -> None:
        self._house = house
        self._service = service
        self._up = up
        self._shared = up.slots > 0 or up.counted
        self._call: Call | None = None
        self._status = 0
        self._size = 0
        self._events = False
        self._parts: list[bytes] = []  # of an answer in one piece
        self._asked_at = self._said_at = clock.mono()
        self.ticket = ticket.copy(house.meter.name(), caller=CALLER, endpoint=up.spec)

    def begin(self, body: Body) -> None:
        """Send it."""
        self._follow = body.eavesdropper(self._up)
        if body.heavy(self._up, self.ticket):
            self._end(Ending(outcome=Outcome.REJECTED, detail="large"), 413)
            return
        try:
            wire = body.wire(self._up, self.ticket)
        except Invalid as error:
            self._end(Ending(outcome=Outcome.REJECTED, detail=f"dialect: {error}"[:80]), 400)
            return
        self._house.active.add(self)
        self._call = self._up.pool.send(self, wire, connect=self._service.timeouts.connect)

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the head."""
        self._status = status
        self._events = headers.get(b"content-type", b"").startswith(b"text/event-stream")

    def up_body(self, data: bytes) -> None:
        """Follow the answer, and forget it."""
        self._size += len(data)
        self._said_at = clock.mono()
        if self._status == 200 and self._events:
            self._follow.feed(data, self._said_at)
        elif self._status == 200:
            self._parts.append(data)
        if self._size > _MAX_BYTES:
            self.expire()

    def up_end(self, end: End, *, stale: bool) -> None:
        """Note how it ended."""
        del stale
        self._call = None
        if self._status == 200:
            if not self._events:
                self._follow.whole(b"".join(self._parts), clock.mono())
            cut = "" if end is End.COMPLETE else "reset" if end is End.RESET else "clean"
            self._end(self._follow.ending(cut=cut), 200)
        elif self._status:
            self._end(Ending(outcome=Outcome.ERROR, detail=str(self._status)), self._status)
        else:
            self._end(Ending(outcome=Outcome.ERROR, detail="502"), 502)

    def tick(self, now: float) -> None:
        """Let it go when it takes longer than a request may."""
        asked = now - self._asked_at
        silent = now - self._said_at if self._size else None
        over = late(self._service.timeouts, waited=asked, asked=asked, silent=silent)
        if over:
            self._drop(Ending(outcome=Outcome.TIMEOUT, detail=over))

    def expire(self) -> None:
        """Let it go: the worker stops, or the answer is too long."""
        self._drop(Ending(outcome=Outcome.CANCELLED))

    def _drop(self, ending: Ending) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.abort()
        self._end(ending, self._status or 504)

    def _end(self, ending: Ending, status: int) -> None:
        house, ticket = self._house, self.ticket
        house.active.discard(self)
        self._up.give(shared=self._shared)
        house.meter.write(ticket.record(ending, status, tokens=self._follow.tokens(), gaps=self._follow.gaps()), "")
