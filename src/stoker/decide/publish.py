"""What may the gateways know: which services, under which names, with which endpoints, in which state?

1. A service is exposed only when a gateway's selector names it; an empty selector exposes nothing.
2. A service answers to ``namespace/name``, to ``name`` where only one exposed service has it, and to its aliases.
3. A LoRA adapter is a model under its own name, or ``namespace/name:adapter`` where that is somebody else's too.
4. A replica appears only in the state that its own decision asked for (probe, serve, drain); all others do not exist.
5. The result is ordered and free of times, so an unchanged world publishes nothing new.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoker.facts.routes import Endpoint, Limits, Mirror, Service, State, Target, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """One line of a service's ``endpoints``: which labels, how much weight, at which priority."""

    labels: Mapping[str, str]
    name: str = ""
    weight: int = 1
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One ModelService with what its gateway and use case add."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    selectors: tuple[Selector, ...] = ()
    aliases: tuple[str, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_output_tokens: int = 4096
    policy: str = "PrefixCache"
    interactive: bool = True
    session_header: str = ""
    normalise: bool = True
    strip: tuple[str, ...] = ()
    mirror: str = ""  # the name of one of the selectors
    mirror_percent: float = 0.0
    duplicates: str = "Join"
    limits: Limits = field(default_factory=Limits)
    max_queued: int | None = None

    @property
    def key(self) -> str:
        """Its full name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One endpoint with the labels that services select it by."""

    endpoint: Endpoint
    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The tables of a routes snapshot, and why a service that exists is not among them."""

    services: tuple[Service, ...]
    endpoints: tuple[Endpoint, ...]
    hidden: Mapping[str, str]


def publish(
    offers: Sequence[Offer], endpoints: Sequence[Labelled], *, exposed: Sequence[Mapping[str, str]]
) -> Published:
    """Build the tables. ``exposed`` holds the label selectors of all gateways."""
    ordered = sorted(offers, key=lambda o: o.key)
    shown = [o for o in ordered if any(labels and selects(labels, o.labels) for labels in exposed)]
    short = Counter(o.name for o in shown)
    claims = Counter(alias for o in shown for alias in set(o.aliases))
    taken = {o.key for o in shown} | {name for name, count in short.items() if count == 1}
    groups = {o.key: [_found(o, selector, endpoints) for selector in o.selectors] for o in shown}
    adapters = {o.key: {a for group in groups[o.key] for e in group for a in e.models} for o in shown}
    carried = Counter(a for some in adapters.values() for a in some)
    alone = {a for a, count in carried.items() if count == 1 and not claims[a] and a not in taken}
    services = []
    for o in shown:
        names = [o.key, *([o.name] if short[o.name] == 1 else [])]
        names += [a for a in o.aliases if claims[a] == 1 and a not in taken]
        called = {(a if a in alone else f"{o.key}:{a}"): a for a in sorted(adapters[o.key])}
        services.append(_service(o, groups[o.key], names=names, adapters=called))
    used = {name for s in services for target in s.targets for name in target.endpoints}
    used |= {name for s in services if s.mirror is not None for name in s.mirror.endpoints}
    # A replica that is being proven belongs to no service yet by its labels alone: probes reach it by name.
    tables = sorted((e.endpoint for e in endpoints), key=lambda e: e.name)
    hidden = {o.key: "no gateway's serviceSelector names it" for o in ordered if o not in shown}
    kept = tuple(e for e in tables if e.name in used or e.state is not State.SERVE)
    return Published(services=tuple(services), endpoints=kept, hidden=hidden)


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether every wanted label is there."""
    return all(labels.get(name) == value for name, value in wanted.items())


def _found(offer: Offer, selector: Selector, endpoints: Sequence[Labelled]) -> list[Endpoint]:
    """Find the endpoints of one line, in the order of their names."""
    mine = (e for e in endpoints if e.namespace == offer.namespace and selects(selector.labels, e.labels))
    return sorted((e.endpoint for e in mine), key=lambda e: e.name)


def _service(
    offer: Offer, groups: Sequence[Sequence[Endpoint]], *, names: list[str], adapters: dict[str, str]
) -> Service:
    targets = []
    mirror = None
    for selector, group in zip(offer.selectors, groups, strict=True):
        found = tuple(e.name for e in group)
        if offer.mirror and selector.name == offer.mirror:  # it gets copies, and no request of its own
            mirror = Mirror(endpoints=found, percent=offer.mirror_percent)
        else:
            targets.append(Target(endpoints=found, weight=selector.weight, priority=selector.priority))
    return Service(
        name=offer.key,
        models=tuple(dict.fromkeys([*names, *adapters])),
        adapters=adapters,
        targets=tuple(targets),
        timeouts=offer.timeouts,
        max_output_tokens=offer.max_output_tokens,
        policy=offer.policy,
        interactive=offer.interactive,
        session_header=offer.session_header,
        normalise=offer.normalise,
        strip=offer.strip,
        mirror=mirror,
        duplicates=offer.duplicates,
        limits=offer.limits,
        max_queued=offer.max_queued,
    )
