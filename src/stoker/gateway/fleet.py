"""What does this worker know about services and endpoints? The routes in force, and what it saw of each endpoint."""

import heapq
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from stoker.base import clock
from stoker.decide.admit import Rank, rank, sheds
from stoker.decide.quota.estimate import Answers
from stoker.decide.quota.scopes import rates
from stoker.decide.route import eject
from stoker.decide.steer import affinity
from stoker.decide.steer.window import Ratio
from stoker.drivers.slots import Slots
from stoker.facts.routes import Endpoint, Routes, Service, State, Target
from stoker.gateway.dialect import ALL, spoken
from stoker.http1.pool import Pool
from stoker.wire.pairs import Pair

_log = logging.getLogger("gateway.fleet")
_ANTHROPIC: Final = b"2023-06-01"  # the version of its API that every endpoint of that schema knows


class Waiter(Protocol):
    """A request that waits for a slot."""

    @property
    def waiting(self) -> bool:
        """Whether it still does."""

    def wake(self) -> bool:
        """Try to run now; False: there is still no slot."""

    def shed(self) -> None:
        """End now: somebody of a better rank needs the place."""


class Upstream:
    """One endpoint as this worker sees it. It outlives a reload of the routes."""

    __slots__ = (
        "counted",
        "dressed_at",
        "ejected_until",
        "faults",
        "fields",
        "last_token_at",
        "local",
        "pairs",
        "pool",
        "prefix",
        "seed",
        "services",
        "serving",
        "shared",
        "slots",
        "speaks",
        "spec",
        "starts",
    )

    def __init__(self, spec: Endpoint, shared: Slots) -> None:
        self.renew(spec)
        self.pool = Pool(spec.origin)
        self.shared = shared
        self.prefix = b""
        self.fields = b""  # everything between the path and what belongs to one request
        self.starts: dict[str, bytes] = {}  # by the engine's dialect: all that comes before what belongs to one request
        self.services: list[ServiceState] = []
        self.counted = False  # whether the workers share their counts although there is no cap: they balance by them
        self.local = 0
        self.faults = 0
        self.ejected_until = 0.0
        self.last_token_at = 0.0
        self.dressed_at = 0.0

    def renew(self, spec: Endpoint) -> None:
        """Take a new specification."""
        self.spec = spec
        self.seed = affinity.seed(spec.incarnation)
        self.serving = spec.state is State.SERVE
        native = {*spec.dialects, "embeddings"} if spec.embeddings else set(spec.dialects)
        ways = {dialect.name: spoken(dialect, native) for dialect in ALL}
        self.speaks = {name: how for name, how in ways.items() if how}  # a client's dialect, and how to ask for it
        self.pairs = {name: Pair(client=name, upstream=how, engine=spec.engine) for name, how in self.speaks.items()}
        self.slots = spec.slots  # requests that it can work on at once; 0: no cap

    def dress(self, folder: Path, problems: list[str]) -> None:
        """Write the head that all requests to it share, with the credential as its file has it now."""
        self.dressed_at = clock.mono()
        given = _credential(self.spec, folder, problems)
        self.fields = b" HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\n%b" % (self.pool.authority, given)
        self.starts = {each.name: b"POST %b%b%b" % (self.prefix, each.upstream, self.fields) for each in ALL}

    @property
    def running(self) -> int:
        """Requests that it works on now, over all workers where a cap makes that count."""
        return self.shared.taken(self.spec.incarnation) if self.spec.slots or self.counted else self.local

    def take(self, *, capped: bool) -> bool:
        """Take a slot; False when another worker was faster. A probe is not ``capped``: it must get through."""
        if capped:
            if not self.shared.take(self.spec.incarnation, self.spec.slots):
                return False
        elif self.counted:
            self.shared.add(self.spec.incarnation)
        self.local += 1
        return True

    def give(self, *, shared: bool) -> None:
        """Give a slot back and let the next one run; ``shared``: the workers' table knows of it."""
        self.local -= 1
        if shared:
            self.shared.give(self.spec.incarnation)
        waiting = [service for service in self.services if service.queue]
        if len(waiting) > 1:  # people and batches of several models wait for one engine
            waiting.sort(key=lambda service: service.queue[0][:2] if service.queue else (0.0, 0))
        for service in waiting:
            service.wake()

    def well(self, now: float) -> None:
        """Note progress."""
        self.faults = 0
        self.ejected_until = 0.0
        self.last_token_at = now

    def fault(self, now: float) -> None:
        """Note a fault of the endpoint; after some in a row it is left alone for a while."""
        self.faults += 1
        self.ejected_until = eject(self.faults, now=now)


class ServiceState:
    """One service as this worker sees it, with those who wait for a slot."""

    __slots__ = (
        "_arrivals",
        "answers",
        "limited",
        "mean",
        "queue",
        "ratio",
        "room",
        "session_header",
        "several",
        "slots",
        "spec",
        "spoken",
        "stream_upstream",
        "targets",
        "turn",
    )

    def __init__(self, spec: Service) -> None:
        self.renew(spec)
        self.mean = 1.0  # seconds that one answer takes
        self.queue: list[tuple[float, int, float, Waiter]] = []
        self._arrivals = 0
        self.ratio = Ratio()
        self.answers = Answers()
        self.turn = 0  # counts requests where they go to the endpoints in turn

    def renew(self, spec: Service) -> None:
        """Take a new specification; those who wait go on waiting."""
        self.spec = spec
        self.limited = rates(spec.limits)
        self.session_header = spec.session_header.encode()
        self.several = False  # whether there is a choice of endpoints
        self.targets: dict[str, tuple[Target, ...]] = {}  # by dialect, sorted by priority
        self.room = 0
        self.slots = 0
        self.spoken: frozenset[str] = frozenset()
        self.stream_upstream = False  # one of its engines cannot cancel what is not streamed

    def rank(self, *, priority: int, now: float) -> Rank:
        """Give a newcomer its place in the order."""
        self._arrivals += 1
        return rank(priority=priority, interactive=self.spec.interactive, at=now, arrival=self._arrivals)

    def wait(self, waiter: Waiter, *, priority: int, now: float) -> None:
        """Queue up."""
        heapq.heappush(self.queue, (*self.rank(priority=priority, now=now), now, waiter))

    @property
    def last(self) -> tuple[Rank, Waiter] | None:
        """Who stands last, and would be shed first."""
        entry = max((entry for entry in self.queue if entry[3].waiting), key=lambda entry: entry[:2], default=None)
        return (entry[:2], entry[3]) if entry is not None else None

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(entry[3].waiting for entry in self.queue) if self.queue else 0

    @property
    def oldest(self) -> float:
        """Since when the oldest waits (monotonic), 0: nobody."""
        return min((entry[2] for entry in self.queue if entry[3].waiting), default=0.0)

    def wake(self) -> None:
        """Let those run who can, in their order."""
        while self.queue:
            entry = heapq.heappop(self.queue)  # before wake(): that may end in here again
            if entry[3].waiting and not entry[3].wake():
                heapq.heappush(self.queue, entry)
                return

    def speaks_only_others(self, dialect: str) -> bool:
        """Whether endpoints exist, but none that speaks a dialect: waiting would not help."""
        return dialect not in self.spoken and bool(self.spoken)

    def in_turn(self) -> int:
        """Count on."""
        self.turn += 1
        return self.turn

    def took(self, seconds: float) -> None:
        """Learn how long answers take."""
        self.mean += (seconds - self.mean) * 0.1


class Fleet:
    """The routes in force."""

    def __init__(self, shared: Slots, folder: Path) -> None:
        self._shared = shared
        self._folder = folder  # credential files are named relative to it, or absolutely
        self.routes = Routes(generation=0)
        self.upstreams: dict[str, Upstream] = {}
        self.retired: list[Upstream] = []  # gone from the routes, but requests still run there
        self.services: dict[str, ServiceState] = {}
        self.by_model: dict[str, ServiceState] = {}
        self.problem = ""
        self.died: Callable[[str, str, float], None] = lambda _name, _incarnation, _now: None

    def load(self, routes: Routes) -> None:
        """Put new routes in force; running requests and what is known of endpoints stay."""
        old = {(up.spec.name, up.spec.incarnation, up.spec.origin): up for up in self.upstreams.values()}
        problems: list[str] = []
        upstreams: dict[str, Upstream] = {}
        for spec in routes.endpoints:
            up = old.pop((spec.name, spec.incarnation, spec.origin), None) or Upstream(spec, self._shared)
            served = up.serving
            up.renew(spec)
            if served and not up.serving:  # it drains in good order, or it died; only then was anybody cut off there
                self.died(spec.name, spec.incarnation, clock.now())
            up.services = []
            up.prefix = spec.prefix.encode()
            up.dress(self._folder, problems)
            upstreams[spec.name] = up
        self.retired = [up for up in (*self.retired, *old.values()) if up.local]
        for up in old.values():
            self.died(up.spec.name, up.spec.incarnation, clock.now())
            up.services = []
            up.pool.close()
        self.routes, self.upstreams = routes, upstreams
        self._serve(routes)
        self.problem = "; ".join(problems)
        for service in self.services.values():
            service.wake()

    def _serve(self, routes: Routes) -> None:
        services = {}
        for spec in routes.services:
            service = services[spec.name] = self.services.get(spec.name) or ServiceState(spec)
            service.renew(spec)
            targets = sorted(spec.targets, key=lambda target: target.priority)
            for dialect in ALL:
                service.targets[dialect.name] = tuple(self._speaking(target, dialect.name) for target in targets)
            by_dialect = service.targets.items()
            service.spoken = frozenset(name for name, some in by_dialect if any(target.endpoints for target in some))
            names = {name for target in targets for name in target.endpoints}
            service.several = len(names) > 1
            for name in names:
                up = self.upstreams.get(name)
                if up is not None and up.serving:
                    up.counted = up.counted or service.several
                    up.services.append(service)
                    service.room += up.spec.queue
                    service.slots += up.spec.slots
                    service.stream_upstream = service.stream_upstream or up.spec.stream_upstream
            if spec.max_queued is not None:
                service.room = spec.max_queued
        self.services = services
        self.by_model = {model: services[spec.name] for spec in routes.services for model in spec.models}

    def queue(self, spec: Service) -> bool:
        """Take a place in a service's queue; False where all workers of the machine together have as many as may be."""
        return spec.max_queued is None or self._shared.take(f"queue {spec.name}", spec.max_queued)

    def leave_queue(self, spec: Service) -> None:
        """Give it back."""
        if spec.max_queued is not None:
            self._shared.give(f"queue {spec.name}")

    def shed(self, service: ServiceState, *, priority: int, now: float, everywhere: bool = False) -> bool:
        """Make room for a newcomer, by the one who waits last in the order; False where nobody stands behind it."""
        queues = self.services.values() if everywhere else (service,)
        lasts = [last for each in queues if each.queue and (last := each.last) is not None]
        last = max(lasts, key=lambda each: each[0], default=None)
        if last is None or not sheds(service.rank(priority=priority, now=now), last[0]):
            return False
        last[1].shed()
        return True

    def _speaking(self, target: Target, dialect: str) -> Target:
        names = [name for name in target.endpoints if name in self.upstreams]
        return Target(
            endpoints=tuple(name for name in names if dialect in self.upstreams[name].speaks),
            weight=target.weight,
            priority=target.priority,
        )

    def sweep(self) -> None:
        """Let those run for whom another worker has freed a slot; close connections that nobody needs."""
        now = clock.mono()
        for service in self.services.values():
            service.wake()
        for up in (*self.upstreams.values(), *self.retired):
            up.pool.sweep(now)
            if up.spec.refresh and now - up.dressed_at >= up.spec.refresh:
                up.dress(self._folder, [])
        self.retired = [up for up in self.retired if up.local]


def _credential(spec: Endpoint, folder: Path, problems: list[str]) -> bytes:
    if not spec.credential_file:
        return b""
    try:
        secret = (folder / spec.credential_file).read_bytes().strip()
    except OSError as error:
        _log.warning("credential unreadable", extra={"fields": {"endpoint": spec.name, "why": str(error)}})
        problems.append(f"the credential of endpoint {spec.name} cannot be read: {error.strerror}")
        return b""
    if spec.key_header:
        return b"x-api-key: %b\r\nanthropic-version: %b\r\n" % (secret, _ANTHROPIC)
    return b"authorization: Bearer %b\r\n" % secret
