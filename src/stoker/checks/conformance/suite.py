"""Run the probes against one endpoint and tell what holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stoker.base.errors import Driver, Fault, Invalid, nearest
from stoker.checks.conformance import chat, messages, responses, surface
from stoker.checks.conformance.probe import Finding, Probe, State, Talk, failed, skipped
from stoker.checks.conformance.replay import probes as replays

DIALECTS: Final = {"chat": chat.PATH, "messages": messages.PATH, "responses": responses.PATH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One probe and what came of it."""

    name: str
    what: str
    finding: Finding

    @property
    def fails(self) -> bool:
        """Whether it makes the whole run fail."""
        return self.finding.state is State.FAIL


def all_probes() -> tuple[Probe, ...]:
    """Every probe, in the order of the report."""
    return (*surface.PROBES, *chat.PROBES, *messages.PROBES, *responses.PROBES, *replays())


def chosen(dialects: Sequence[str]) -> tuple[Probe, ...]:
    """Choose the probes of some dialects; all when none is named. Raises Invalid naming the nearest."""
    for name in dialects:
        if name not in DIALECTS:
            hint = nearest(name, list(DIALECTS)) or f"known: {', '.join(DIALECTS)}"
            raise Invalid(Fault(message=f"no dialect is called '{name}'", field="--dialect", hint=hint))
    return tuple(p for p in all_probes() if not dialects or p.surface in dialects)


def reach(talk: Talk) -> str:
    """Choose the model to ask: the one that is named, else the first that is listed. Raises Driver or Invalid."""
    got = talk.get(surface.MODELS)
    if got.trouble:
        raise Driver(got.trouble)
    if got.status in (401, 403):
        raise Driver(f"{talk.url} refuses the key ({got.status}): give one with --key")
    listed = surface.models(talk)
    if talk.model or not listed:
        if not talk.model:
            raise Invalid(Fault(message="the endpoint lists no model: name one", field="--model"))
        return talk.model
    return listed[0]


def run(talk: Talk, probes: Sequence[Probe], *, demanded: Sequence[str] = ()) -> Iterator[Row]:
    """Run the probes one after the other. A dialect that is not served is skipped, unless it was asked for by name."""
    served: dict[str, bool] = {}
    for probe in probes:
        path = DIALECTS.get(probe.surface)
        if path is not None and probe.surface not in served:
            served[probe.surface] = talk.post(path, b"{}").status not in (404, 405, 501)
        if served.get(probe.surface, True):
            finding = probe.run(talk)
        elif probe.surface in demanded:
            finding = failed(f"{path} is not served")
        else:
            finding = skipped(f"{path} is not served")
        yield Row(name=probe.name, what=probe.what, finding=finding)
