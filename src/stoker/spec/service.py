"""Under which name clients ask for a model, and which endpoints answer."""

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from stoker.spec.gateway import Timeouts
from stoker.spec.meta import Bool, Count, Name, Natural, Ref, Selector, Spec, Text


class ServiceEndpoint(Spec):
    """Endpoints by their labels. A lower priority number goes first; weight splits inside one priority."""

    name: Name | None = None
    priority: Annotated[int, Strict(), Field(ge=0, le=63)] = 0
    weight: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = 1
    selector: Selector

    @model_validator(mode="after")
    def _selects(self) -> "ServiceEndpoint":
        if not self.selector.match_labels:
            raise ValueError("selector.matchLabels is empty, which selects nothing")
        return self


class Session(Spec):
    """How requests of one session are told: by a header, besides those that known clients send."""

    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class Normalise(Spec):
    """What changes in a prompt from turn to turn without meaning anything: versions, dates, ids, the order of tools.

    ``key``: it does not count when a replica is chosen. ``prompt``: which of it no engine sees at all, so that its
    cache holds; answers may then not know the date.
    """

    key: Bool = True
    prompt: tuple[Literal["marker", "date", "id", "tools", "keys"], ...] = ()


class Routing(Spec):
    """How an endpoint is chosen: where the prompt is cached, by load, or in turn.

    ``duplicates``: a turn that an agent sends again while the first still runs takes over what the engine has begun
    (Join), or the first is cancelled (Cancel), or both run (Allow).
    """

    policy: Literal["RoundRobin", "LeastLoad", "PrefixCache"] = "PrefixCache"
    session: Session | None = None
    normalise: Normalise = Normalise()
    duplicates: Literal["Join", "Cancel", "Allow"] = "Join"


class ServiceLimits(Spec):
    """Limits of one service over all callers. 0, or nothing: no limit.

    ``maxConcurrent`` counts requests under way, whether an engine works on them or they wait; one more is refused, or
    takes the place of one of lower rank that still waits. ``maxQueued`` is how many of them may wait on one machine; 0:
    none.
    """

    max_output_tokens: Count | None = None
    max_concurrent: Natural | None = None
    max_queued: Natural | None = None
    requests_per_minute: Natural = 0
    tokens_per_minute: Natural = 0
    tokens_per_day: Natural = 0


class Mirror(Spec):
    """Send a share of the requests to a second endpoint as well, and drop its answers."""

    endpoint: Name
    percent: Annotated[float, Strict(), Field(gt=0, le=100)]


class ModelServiceSpec(Spec):
    """One name that clients use."""

    endpoints: Annotated[tuple[ServiceEndpoint, ...], Field(min_length=1, max_length=32)]
    aliases: tuple[Text, ...] = ()
    use_case_ref: Ref | None = None
    routing: Routing = Routing()
    timeouts: Timeouts = Timeouts()
    limits: ServiceLimits = ServiceLimits()
    mirror: Mirror | None = None

    @model_validator(mode="after")
    def _named_once(self) -> "ModelServiceSpec":
        names = [e.name for e in self.endpoints if e.name]
        if len(set(names)) < len(names):
            raise ValueError("two endpoints have the same name")
        if self.mirror is not None and self.mirror.endpoint not in names:
            there = f"they have: {', '.join(names)}" if names else "none of them has one"
            raise ValueError(f"mirror.endpoint '{self.mirror.endpoint}' is the name of none of the endpoints; {there}")
        return self
