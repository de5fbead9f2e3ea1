"""The words in which a replica's attempts are spoken of: what is seen, remembered, allowed, done and told."""

from dataclasses import dataclass, field

import msgspec

from stoker.decide.conditions import Condition
from stoker.facts.observed import Running
from stoker.facts.routes import State


class Trouble(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the last attempt ended."""

    reason: str
    message: str = ""
    action: str = ""
    attempt: int = 0  # the attempt that was ended for it; 0: it ended by itself


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a replica remembers between passes and over restarts of the controller; kept in its status."""

    attempt: int = 0  # number of the current or last attempt; 0: none yet
    failures: int = 0  # attempts that failed in a row
    crashes: int = 0  # attempts that failed in all
    retry_at: float = 0.0
    started_at: float = 0.0  # 0: no attempt runs
    loaded_at: float = 0.0
    generates_at: float = 0.0
    routable_at: float = 0.0
    drain_at: float = 0.0
    trouble: Trouble | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest answer to one question about one incarnation."""

    ok: bool
    at: float
    reason: str = ""
    message: str = ""
    action: str = ""
    failing_since: float = 0.0  # start of the unbroken run of failures; 0 when ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """How the gateways see this incarnation: its state in the newest routes, and whether all live workers have it."""

    state: State
    acknowledged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits in seconds."""

    startup: float = 600.0
    generate: float = 120.0
    drain: float = 60.0
    grace: float = 10.0
    health_every: float = 5.0
    unhealthy_after: float = 20.0
    stalled: float = 120.0
    first_retry: float = 1.0
    longest_retry: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that a decision about one replica depends on, as observed in one pass."""

    accepted: Condition
    files: Check | None = None  # None: nobody has looked yet
    preflight: Check | None = None
    devices: tuple[str, ...] | None = None  # None: there is no room
    no_room: str = ""
    running: Running | None = None  # the current attempt, as the host knows it
    leftovers: tuple[Running, ...] = ()  # other attempts of this replica
    spec_hash: str = ""  # what an attempt must have been started with to be taken over
    explained: Trouble | None = None  # why ``running`` exited
    loaded: Check | None = None
    generates: Check | None = None
    routable: Check | None = None
    health: Check | None = None
    progress: Check | None = None
    published: Published | None = None
    gateway_gone: bool = False  # no worker process is alive: nothing can be in flight
    in_flight: int | None = None  # running and waiting over all live workers; None: unknown
    last_token_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Bring the model files here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start attempt ``attempt`` on ``devices``."""

    attempt: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End an attempt: ask, and after ``grace`` seconds insist."""

    name: str
    grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove the traces of an attempt that has ended."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Put one question (loaded, generates, routable, health, progress) to the current attempt."""

    question: str


Action = Fetch | Start | Stop | Forget | Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, what to tell, what to remember; ``route`` is the state that the gateways should have it in."""

    actions: tuple[Action, ...] = ()
    conditions: tuple[Condition, ...] = ()
    memory: Memory = field(default_factory=Memory)
    route: State | None = None
    look_again: float | None = None
    gone: bool = False  # nothing of it is left: the resource may go
