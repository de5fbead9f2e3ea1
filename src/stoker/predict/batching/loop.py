"""What happens to a load on several engines? The loop that moves machines from event to event.

A ``Source`` says which requests come: at given times (open), or as answers to finished ones (closed, sessions). A
``Route`` says which engine takes one; it is an argument, so that the policies of the gateway can be tried.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from stoker.predict.batching.machine import Machine, Step
from stoker.predict.batching.request import Job, Request

Route: TypeAlias = Callable[[Request, float], int]


class Arrival(NamedTuple):
    """A request and when it comes."""

    at: float
    request: Request


class Source(Protocol):
    """Where requests come from."""

    def begin(self) -> Iterable[Arrival]:
        """Those that come whatever happens, and the first of every client."""

    def after(self, request: Request, now: float) -> Arrival | None:
        """What a client sends after this request has ended or was refused."""


@dataclass(slots=True)
class Run:
    """What came of it. ``jobs`` in the order in which they ended."""

    jobs: list[Job] = field(default_factory=list)
    refused: list[Arrival] = field(default_factory=list)
    seconds: float = 0.0


class _Loop:
    __slots__ = ("_at", "_events", "_machines", "_numbers", "_route", "_source", "run")

    def __init__(self, machines: Sequence[Machine], source: Source, route: Route) -> None:
        self.run = Run()
        self._machines = machines
        self._source = source
        self._route = route
        self._numbers = count()
        # An arrival, or the number of a machine whose step ends; the second number keeps the order of equals.
        self._events: list[tuple[float, int, Arrival | int]] = [(a.at, next(self._numbers), a) for a in source.begin()]
        heapify(self._events)
        self._at: list[Step | None] = [None] * len(machines)

    def go(self, requests: int) -> None:
        """Until so many have ended, or nothing is left to do."""
        while self._events and len(self.run.jobs) + len(self.run.refused) < requests:
            now, _, event = heappop(self._events)
            self.run.seconds = now
            if isinstance(event, int):
                self._end(event, now)
                self._move(event, now)
            else:
                self._arrive(event, now)

    def _arrive(self, arrival: Arrival, now: float) -> None:
        place = self._route(arrival.request, now)
        if self._machines[place].submit(arrival.request, now) is None:
            self.run.refused.append(arrival)
            self._follow(arrival.request, now)
        elif self._at[place] is None and not (self._events and self._events[0][0] <= now):
            self._move(place, now)  # after all that come at the same moment, so that they share its first step
        elif self._at[place] is None:
            self._at[place] = Step(seconds=0.0, ticks=0)
            heappush(self._events, (now, next(self._numbers), place))

    def _end(self, place: int, now: float) -> None:
        step = self._at[place]
        self._at[place] = None
        for job in step.finished if step is not None else ():
            self.run.jobs.append(job)
            self._follow(job.request, now)

    def _follow(self, request: Request, now: float) -> None:
        coming = self._source.after(request, now)
        if coming is not None:
            heappush(self._events, (coming.at, next(self._numbers), coming))

    def _move(self, place: int, now: float) -> None:
        """Let a machine make its next step, once all that came at this moment is in."""
        if self._events and self._events[0][0] <= now and not isinstance(self._events[0][2], int):
            self._at[place] = Step(seconds=0.0, ticks=0)
            heappush(self._events, (now, next(self._numbers), place))
            return
        step = self._machines[place].step(now, until=self._events[0][0] if self._events else inf)
        self._at[place] = step
        if step is not None:
            heappush(self._events, (now + step.seconds, next(self._numbers), place))


def run(machines: Sequence[Machine], source: Source, route: Route, *, requests: int) -> Run:
    """Run until ``requests`` have ended."""
    loop = _Loop(machines, source, route)
    loop.go(requests)
    return loop.run


def least_loaded(machines: Sequence[Machine]) -> Route:
    """The plain policy: where least runs and waits, the first of equals."""
    return lambda _request, _now: min(
        range(len(machines)), key=lambda place: machines[place].running + machines[place].waiting
    )
