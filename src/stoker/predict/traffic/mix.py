"""What does a profile ask of an engine on average? A sample of its turns, reduced to what the formulas need."""

from dataclasses import dataclass
from random import Random
from typing import Final

from stoker.predict.batching.score import quantile
from stoker.predict.traffic.profile import Profile
from stoker.predict.traffic.sessions import Turn, session

_TURNS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Tokens of a request. ``shared``: of the prompt, sent before; ``new_p90``: what nine of ten have to compute."""

    prompt: float
    shared: float
    output: float
    hidden: float
    new_p90: float
    prompt_p90: float
    longest: int
    whole_p99: float  # of prompt and output together
    turns: float  # of a session
    gap_seconds: float

    @property
    def new(self) -> float:
        """Tokens of a prompt that must be computed, if the cache holds all that was sent before."""
        return self.prompt - self.shared

    @property
    def context(self) -> float:
        """Tokens that a sequence has in the cache while it decodes."""
        return self.prompt + self.output / 2


def mix(profile: Profile, *, seed: int = 1) -> Mix:
    """Sample a profile."""
    rng = Random(seed)  # noqa: S311 -- a sample, no secret
    turns: list[Turn] = []
    sessions = 0
    while len(turns) < _TURNS:
        turns += list(session(profile, rng))
        sessions += 1
    count = len(turns)
    return Mix(
        prompt=sum(t.prompt_tokens for t in turns) / count,
        shared=sum(t.shared_tokens for t in turns) / count,
        output=sum(t.output_tokens for t in turns) / count,
        hidden=sum(t.hidden_tokens for t in turns) / count,
        new_p90=quantile(sorted(t.prompt_tokens - t.shared_tokens for t in turns), 0.9),
        prompt_p90=quantile(sorted(t.prompt_tokens for t in turns), 0.9),
        longest=max(t.prompt_tokens + t.output_tokens for t in turns),
        whole_p99=quantile(sorted(t.prompt_tokens + t.output_tokens for t in turns), 0.99),
        turns=count / sessions,
        gap_seconds=profile.gap_seconds.mean,
    )
