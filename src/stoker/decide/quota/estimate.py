"""How many tokens will a request use, before it runs, and how many did it use, whichever way it ended?

1. The estimate is the prompt and the answer that is to be expected: what answers of this model had lately, and a bit
   more, but never more than the request may have. The cap itself would refuse everything: agents ask for 32,000 tokens
   as a matter of form. The prompt alone would let any number of long answers begin together.
2. What the engine reported counts. Where it reported nothing, its events and our estimate of the prompt do.
3. A request that no engine saw used nothing; if we refused it, it was no request either.
4. An engine that broke off before it said anything has its caller pay nothing. A client that left before anything came,
   or outlasted a time limit, pays the prompt: the engine had begun to read it.
"""

from math import ceil
from typing import Final

import msgspec

from stoker.decide.steer.window import Ratio
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Tokens

FIRST_ANSWER_TOKENS: Final = 256.0
_TOKENS_PER_BYTE: Final = 0.25  # until the engine has said better
_LEARN: Final = 0.05  # how much one answer weighs
OPAQUE_TOKENS: Final = 4096  # at most, of a prompt with images: their bytes say nothing about tokens
_PAID: Final = (Outcome.CANCELLED, Outcome.TIMEOUT)


class Answers(msgspec.Struct):
    """How long the answers of one model are."""

    mean: float = FIRST_ANSWER_TOKENS
    spread: float = FIRST_ANSWER_TOKENS / 2

    def learn(self, tokens: int) -> None:
        """Take in one answer."""
        off = tokens - self.mean
        self.mean += off * _LEARN
        self.spread += (abs(off) - self.spread) * _LEARN

    def expected(self, cap: int) -> int:
        """Say how long the next one may be; ``cap`` is the most that it may have, 0: it generates nothing."""
        return min(cap, ceil(self.mean + self.spread))


def prompt(prompt_bytes: int, ratio: Ratio, *, opaque: bool = False) -> int:
    """Estimate the tokens of a prompt."""
    per_byte = (ratio.least + ratio.most) / 2 if ratio.seen else _TOKENS_PER_BYTE
    tokens = ceil(prompt_bytes * per_byte)
    return min(tokens, OPAQUE_TOKENS) if opaque else tokens


def completed(tokens: Tokens, ending: Ending, *, dispatched: bool, estimate: int) -> Tokens:
    """Add the prompt where an engine read it and could not say how long it is; ``estimate``: its tokens."""
    if tokens.prompt or not dispatched:
        return tokens
    left = ending.outcome in _PAID and ending.detail != "connect"
    if left or (tokens.output and tokens.estimated):
        return msgspec.structs.replace(tokens, prompt=estimate, estimated=True)
    return tokens


def used(tokens: Tokens, ending: Ending) -> int:
    """Count what a request used."""
    return 0 if ending.outcome is Outcome.REJECTED else tokens.prompt + tokens.output
