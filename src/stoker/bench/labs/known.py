"""The experiments that run against one endpoint. Each says what its own numbers show, whatever they turn out to be."""

from collections.abc import Sequence
from typing import Final

from stoker.base.errors import Fault, Invalid, nearest
from stoker.bench.labs.lab import Arm, Lab
from stoker.decide.measure.summary import Step

_MUCH: Final = 1.25  # a factor below this is no difference in a run this short


def _more_at_once(steps: Sequence[Step]) -> tuple[str, ...]:
    first, last = steps[0], steps[-1]
    load = last.in_flight / max(first.in_flight, 1e-9)
    rate = last.tokens.per_second / max(first.tokens.per_second, 1e-9)
    wait = last.times.visible_ttft.p50 / max(first.times.visible_ttft.p50, 1e-9)
    told = [f"{load:.0f} times as many requests at once gave {rate:.1f} times the tokens a second."]
    if rate < load / 2:
        told.append("Batching is no gift: once the machine is busy, more at once only makes everybody wait.")
    told.append(f"The first visible word came {wait:.1f} times as late.")
    best = max(steps, key=lambda step: step.tokens.per_second)
    told.append(f"Most tokens a second came with {best.in_flight:.0f} in flight.")
    return tuple(told)


def served(steps: Sequence[Step]) -> int:
    """Say how many sessions are really served at once: with more the wait for the first word doubles."""
    floor = min(step.times.visible_ttft.p50 for step in steps)
    return round(max(step.in_flight for step in steps if step.times.visible_ttft.p50 <= 2 * floor))


def predicted(steps: Sequence[Step], sessions: int) -> str:
    """Put a prediction beside what was measured, as Markdown."""
    found = served(steps)
    off = f"{found / sessions - 1:+.0%}" if sessions else "-"
    said = "The prediction is what fits into memory; what is served without a wait is bound by speed as well."
    table = f"| predicted | measured | off |\n|---|---|---|\n| {sessions} | {found} | {off} |"
    return f"## Predicted and measured\n\n{table}\n\n{said}"


def _sessions(steps: Sequence[Step]) -> tuple[str, ...]:
    """Find where the wait for the first word leaves its floor."""
    floor = min(step.times.visible_ttft.p50 for step in steps)
    first = next((step for step in steps if step.times.visible_ttft.p50 > 2 * floor), None)
    told = [
        f"Up to {served(steps)} sessions at once heard the first word in twice the best time ({floor * 1000:.0f} ms)."
    ]
    if first is None:
        told.append("No level went beyond that: the real limit lies above what was tried.")
    else:
        told.append(f"With {first.in_flight:.0f} it took {first.times.visible_ttft.p50 / floor:.1f} times as long.")
    told.append("`--predicted N` puts the number beside it that `stoker plan` gives.")
    return tuple(told)


def _where_it_stands(steps: Sequence[Step]) -> tuple[str, ...]:
    front, behind = steps
    shares = (
        f"{front.tokens.cached_share:.0%} of the prompt came from the cache; behind: {behind.tokens.cached_share:.0%}"
    )
    told = [f"The same words, shared part in front: {shares}."]
    factor = behind.times.visible_ttft.p50 / max(front.times.visible_ttft.p50, 1e-9)
    if factor >= _MUCH:
        told.append(f"Behind, the first word came {factor:.1f} times as late. Caches know beginnings only.")
    else:
        told.append("The first word came no later: prompts are short here, or the engine reads them quickly.")
    if not front.tokens.cached_share:
        told.append("Nothing was cached at all: is the engine's prefix cache on, and does it report cached tokens?")
    return tuple(told)


def _two_models(steps: Sequence[Step]) -> tuple[str, ...]:
    one, two = steps
    rate = two.tokens.per_second / max(one.tokens.per_second, 1e-9)
    faster = f"The second made {rate:.2f} times the tokens a second of the first."
    if 1 / _MUCH < rate < _MUCH:
        return (faster, "That is no difference in a run this short.")
    return (faster, "Whether it is as good is in the table of checks, not in this one.")


LABS: Final = (
    Lab(
        name="concurrency",
        question="What do 1, 10 and 50 requests at once do to throughput and to the wait for the first word?",
        method="A closed loop at each level: as soon as one answer ends, its client asks again.",
        arms=(
            Arm(label="1 at once", concurrency=1),
            Arm(label="10 at once", concurrency=10),
            Arm(label="50 at once", concurrency=50),
        ),
        read=_more_at_once,
    ),
    Lab(
        name="sessions",
        question="How many sessions does it serve at once before people wait?",
        method="A closed loop of 1, 2, 4, 8 and 16 sessions; who hears a first word in twice the best time is served.",
        arms=tuple(Arm(label=f"{count} sessions", concurrency=count) for count in (1, 2, 4, 8, 16)),
        read=_sessions,
    ),
    Lab(
        name="prefix",
        question="What is it worth to put what all requests share in front of what differs?",
        method="The same lengths twice, with the shared part as the first message and as the last.",
        arms=(
            Arm(label="shared first", concurrency=2),
            Arm(label="shared last", concurrency=2, head_last=True),
        ),
        read=_where_it_stands,
        head_tokens=4096,
    ),
    Lab(
        name="models",
        question="What do two models, or two quantisations of one, differ in: speed, and quality?",
        method="The same script to both, in turn; then the check suite to both, at rest.",
        arms=(Arm(label="first model", concurrency=2), Arm(label="second model", concurrency=2, second=True)),
        read=_two_models,
        two_models=True,
    ),
)


def find(name: str) -> Lab:
    """Find a lab by its name. Raises Invalid with the nearest."""
    found = next((lab for lab in LABS if lab.name == name), None)
    if found is None:
        names = [*(lab.name for lab in LABS), "failure"]
        hint = nearest(name, names) or f"one of {', '.join(names)}"
        raise Invalid(Fault(message=f"there is no lab '{name}'", field="NAME", hint=hint))
    return found
