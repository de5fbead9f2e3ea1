"""The named kinds of traffic, with where their figures come from.

Measured: fits of published traces. Reported: figures that somebody published, for which a generator was found.
Assumed: ours, to be replaced by the own ledger. A seat is no load: of so many users a share is at work in the busiest
hour (``active``), each with so many sessions at once (``parallel``, subagents included), and each session is in flight
for the part of its time that it waits for an answer.
"""

from dataclasses import dataclass, replace
from typing import Final

from stoker.base.errors import Fault, Invalid, nearest
from stoker.predict.traffic.draw import Always, Draw, LogNormal, Mixture, Quantiles

_NO_PAUSE: Final = Always(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a session's context grows: it starts, each turn adds words of both sides, and at the cap it is compacted."""

    start: Draw
    subagent_share: float
    subagent_start: Draw
    subagent_turns: float
    added: Draw
    cap_tokens: int
    compacted_tokens: int  # what is left behind the head


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of traffic. Without ``growth`` each prompt is drawn, and the turns of a session are put in order."""

    name: str
    source: str
    prompt: Draw
    output: Draw
    turns: float = 1.0  # of a session, on average
    gap_seconds: Draw = _NO_PAUSE  # between an answer and the next request of its session
    head_tokens: int = 0  # the same in all sessions: system prompt and tools
    broken: float = 0.0  # share of turns whose earlier part has changed: compaction, edits, another model
    hidden: float = 0.0  # share of the output that is thought and not seen
    burst: float = 1.0  # shape of the gamma distribution between arrivals; 1: Poisson, less: in bursts
    growth: Growth | None = None
    context_tokens: int = 0  # what does not fit is cut, as a client does; 0: any length
    active: float = 1.0
    parallel: float = 1.0
    preset: str = "chat"  # the use case whose bar it has

    def in_flight(self, service_seconds: float) -> float:
        """Requests in flight for each user, when a request takes so long."""
        waiting = service_seconds / (service_seconds + self.gap_seconds.mean)
        return self.active * self.parallel * waiting


# Tool results come at once, people take their time. Means and medians as an agent benchmark publishes them.
_AGENT_GAP: Final = Mixture(((0.7, LogNormal(1.8, 0.81, 10.0)), (0.3, LogNormal(25.0, 0.97, 120.0))))

_AGENT: Final = Profile(
    name="agent",
    source="generator that reproduces a reported agent load: prompt median 59K, 90 % 125K, two thirds cached",
    prompt=Quantiles(((0.0, 15e3), (0.1, 29e3), (0.5, 59e3), (0.9, 125e3), (0.99, 161e3), (1.0, 168e3))),
    output=LogNormal(231, 1.0, 8192),
    turns=23,
    gap_seconds=_AGENT_GAP,
    head_tokens=15_000,
    broken=0.40,
    hidden=0.5,
    growth=Growth(
        start=LogNormal(15_700, 1.0),
        subagent_share=0.48,
        subagent_start=LogNormal(17_400, 0.8),
        subagent_turns=5,
        added=LogNormal(806, 1.2, 40_000),
        cap_tokens=168_000,
        compacted_tokens=22_000,
    ),
    active=0.4,
    parallel=1.2,
    preset="coding-agent",
)

_CHAT: Final = Profile(
    name="chat",
    source="quantiles of the Azure 2023 conversation trace; turns and pauses as a public workload catalogue has them",
    prompt=Quantiles(((0.0, 60), (0.1, 207), (0.5, 1020), (0.9, 2734), (0.99, 4142), (1.0, 14050))),
    output=Quantiles(((0.0, 8), (0.1, 50), (0.5, 129), (0.9, 424), (0.99, 601), (1.0, 1000))),
    turns=4,
    gap_seconds=LogNormal.of(45, 40),
    active=0.1,
)

PROFILES: Final[dict[str, Profile]] = {
    each.name: each
    for each in (
        _CHAT,
        Profile(
            name="code-complete",
            source="quantiles of the Azure 2023 code trace, in bursts as a published fit has them",
            prompt=Quantiles(((0.0, 40), (0.1, 147), (0.5, 1469), (0.9, 5188), (0.99, 7436), (1.0, 7437))),
            output=Quantiles(((0.0, 2), (0.1, 5), (0.5, 13), (0.9, 55), (0.99, 251), (1.0, 900))),
            burst=0.25,
            gap_seconds=LogNormal.of(15, 55),
            active=0.3,
        ),
        Profile(
            name="long-chat",
            source="quantiles of the Mooncake conversation trace",
            prompt=Quantiles(((0.0, 300), (0.1, 964), (0.5, 6909), (0.9, 27367), (0.99, 85400), (1.0, 126195))),
            output=Quantiles(((0.0, 2), (0.1, 30), (0.5, 350), (0.9, 597), (0.99, 1119), (1.0, 2000))),
            turns=3,
            broken=0.15,
            gap_seconds=LogNormal.of(45, 40),
            active=0.1,
        ),
        _AGENT,
        replace(_AGENT, name="agent-cached", source="as agent, with prefixes that hold", broken=0.03),
        Profile(
            name="reasoning",
            source="lengths of a public workload catalogue; nine tenths of the output taken as thought (assumed)",
            prompt=LogNormal.of(1000, 800, 16_000),
            output=LogNormal.of(8000, 6500, 32_000),
            hidden=0.9,
            gap_seconds=LogNormal.of(45, 40),
            active=0.1,
        ),
        Profile(
            name="rag",
            source="assumed: a question behind a few found passages",
            prompt=LogNormal(6000, 0.6, 32_000),
            output=LogNormal(250, 0.7, 2048),
            head_tokens=1000,
            gap_seconds=LogNormal.of(60, 60),
            active=0.1,
        ),
        Profile(
            name="batch",
            source="assumed: documents one after another, as many at once as are asked for",
            prompt=LogNormal(3000, 1.0, 16_000),
            output=LogNormal(200, 0.8, 2048),
            head_tokens=500,
            preset="batch",
        ),
    )
}
_OTHER_NAMES: Final = {"coding-agent": "agent", "rag-batch": "batch", "agents": "agent"}


def find(name: str, *, field: str = "--for") -> Profile:
    """Find a profile by its name or that of a use case's preset; raises Invalid with the nearest name."""
    found = PROFILES.get(_OTHER_NAMES.get(name, name))
    if found is None:
        known = [*PROFILES, *_OTHER_NAMES]
        hint = nearest(name, known) or f"one of {', '.join(PROFILES)}, or a trace file"
        raise Invalid(Fault(message=f"there is no traffic profile '{name}'", field=field, hint=hint))
    return found
