"""Does this prompt fit into the context, before an engine is troubled with it?

1. Bytes tell tokens within a band. Where even the most that it may be fits, nobody counts.
2. Where even the least does not fit, nobody counts either: the answer is no.
3. Between the two the engine's own tokeniser is asked, if it has one; else the engine decides.
4. An output that does not fit behind the prompt is cut down to what does, as long as that is worth an answer: agents
   ask for 32,000 tokens as a matter of form.
"""

from enum import StrEnum
from math import ceil, floor
from typing import Final

import msgspec

# Bytes of JSON text a token, over the tokenisers and texts of the last years: source code and digits are dense, CJK has
# three bytes a character; prose in English is near 4.3. Below 1.2 lie only texts of rare letters.
FIRST_LEAST_PER_BYTE: Final = 1 / 7
FIRST_MOST_PER_BYTE: Final = 1 / 1.2
_WIDEN: Final = 0.25  # a learned band is this much wider than what was seen
_LEARNED_AFTER: Final = 20  # requests
LEAST_OUTPUT: Final = 256  # tokens: an answer cut at fewer is worth less than a clear no


class Verdict(StrEnum):
    """What to do with a request."""

    FITS = "fits"
    COUNT = "count"  # ask the engine's tokeniser
    OVERFLOW = "overflow"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict; ``output``: the cap to set where the asked one does not fit, 0: it does. ``prompt``: as we know it."""

    verdict: Verdict
    prompt: int = 0
    output: int = 0


class Ratio(msgspec.Struct, kw_only=True):
    """Tokens a byte of one service's prompts: the least and the most that were seen."""

    least: float = 0.0
    most: float = 0.0
    seen: int = 0

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """Take in what an engine reported. Short prompts are mostly template and tell nothing."""
        if prompt_bytes < 2048 or prompt_tokens <= 0:
            return
        ratio = prompt_tokens / prompt_bytes
        self.least = min(self.least, ratio) if self.seen else ratio
        self.most = max(self.most, ratio)
        self.seen += 1

    def band(self, prompt_bytes: int) -> tuple[int, int]:
        """Say how many tokens a prompt has at least and at most."""
        if self.seen < _LEARNED_AFTER:
            return floor(prompt_bytes * FIRST_LEAST_PER_BYTE), ceil(prompt_bytes * FIRST_MOST_PER_BYTE)
        return floor(prompt_bytes * self.least / (1 + _WIDEN)), ceil(prompt_bytes * self.most * (1 + _WIDEN))


def window(*, band: tuple[int, int], context: int, output: int, exact: int | None = None) -> Window:
    """Decide. ``output`` is what may be generated at most, 0: nothing; ``exact``: the prompt as counted, in tokens."""
    if not context:
        return Window(verdict=Verdict.FITS)
    least, most = band if exact is None else (exact, exact)
    if most + output <= context:
        return Window(verdict=Verdict.FITS, prompt=exact or 0)
    worth = min(output, LEAST_OUTPUT)
    if least + worth > context:
        return Window(verdict=Verdict.OVERFLOW, prompt=least)
    if exact is None:
        return Window(verdict=Verdict.COUNT)
    return Window(verdict=Verdict.FITS, prompt=exact, output=context - exact)
