"""The turns of one session, one after another: how long each prompt is, and how much of it was there before."""

from collections.abc import Iterator
from math import log
from random import Random
from typing import NamedTuple

from stoker.predict.traffic.profile import Growth, Profile


class Turn(NamedTuple):
    """One request of a session. ``gap_seconds``: the pause before it."""

    prompt_tokens: int
    output_tokens: int
    hidden_tokens: int
    shared_tokens: int
    gap_seconds: float


def session(profile: Profile, rng: Random) -> Iterator[Turn]:
    """Play one session."""
    return _grown(profile, profile.growth, rng) if profile.growth else _drawn(profile, rng)


def _drawn(profile: Profile, rng: Random) -> Iterator[Turn]:
    """Prompts of the profile's own lengths, in order: a session's context grows."""
    prompts = sorted(max(1, round(profile.prompt(rng))) for _ in range(_count(profile.turns, rng)))
    before = 0
    for prompt in prompts:
        turn = _turn(profile, rng, prompt=prompt, before=before)
        yield turn
        before = turn.prompt_tokens + turn.output_tokens


def _grown(profile: Profile, growth: Growth, rng: Random) -> Iterator[Turn]:
    """A context that grows with every turn until it is compacted."""
    sub = rng.random() < growth.subagent_share
    context = profile.head_tokens + (growth.subagent_start if sub else growth.start)(rng)
    before = 0
    for _ in range(_count(growth.subagent_turns if sub else profile.turns, rng)):
        if context > growth.cap_tokens:
            context, before = profile.head_tokens + growth.compacted_tokens, 0
        turn = _turn(profile, rng, prompt=round(context), before=before)
        yield turn
        before = turn.prompt_tokens + turn.output_tokens
        context = before + growth.added(rng)


def _turn(profile: Profile, rng: Random, *, prompt: int, before: int) -> Turn:
    output = max(1, round(profile.output(rng)))
    if profile.context_tokens:
        output = min(output, max(1, profile.context_tokens // 2))
        prompt = max(1, min(prompt, profile.context_tokens - output))
    head = min(profile.head_tokens, prompt)
    broken = not before or rng.random() < profile.broken
    return Turn(
        prompt_tokens=prompt,
        output_tokens=output,
        hidden_tokens=int(output * profile.hidden),
        shared_tokens=head if broken else max(head, min(before, prompt)),
        gap_seconds=profile.gap_seconds(rng),
    )


def _count(mean: float, rng: Random) -> int:
    """Turns of a session: each is the last with the same chance."""
    if mean <= 1:
        return 1
    return 1 + int(log(1 - rng.random()) / log(1 - 1 / mean))
