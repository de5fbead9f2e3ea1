"""What do prompts say? Seeded words in blocks, so that 100,000 tokens cost microseconds and equal parts equal bytes.

A text is a function of its key alone, and a shorter one is the beginning of a longer one. It begins with words that
only this key has: prefix caches compare from the beginning, so nothing behind is found by chance.
"""

from random import Random
from typing import Final

# Short and common, so that nearly every tokenizer has a token of its own for each; the server says how many it makes.
_TEXT: Final = (
    "the of and to in is was for on are with his they at be this from have or by one had not but what all"
    " were when we there can an your which their said if do will each about how up out them then she many"
    " some so these would other into has more her two like him see time could no make than first been its"
    " who now people my made over did down only way find use may water long little very after words called"
    " just where most know get through back much before go good new write our used me man too any day same"
    " right look think also around another came come work three must because does part even place well"
    " such here take why help put years away again off went old number great tell men say small every"
    " found still between name should home big give air line set own under read last never us left end"
    " along while might next sound below saw something thought both few those always show large often"
    " together asked house world going want school important until form food keep children feet land side"
    " without boy once animal life enough took four head above kind began almost live page got earth need"
    " far hand high year mother light country father let night picture being study second soon"
)
_WORDS: Final = tuple(_TEXT.split())
_BLOCK_WORDS: Final = 32
_BLOCKS: Final = 1024
_MARK_WORDS: Final = 4


class Book:
    """Where texts come from. ``words_per_token``: as the server counts."""

    __slots__ = ("_blocks", "_lists", "words_per_token")

    def __init__(self, *, words_per_token: float = 1.0) -> None:
        rng = Random("stoker bench")  # noqa: S311 -- the same words everywhere, no secret
        self._lists = [rng.choices(_WORDS, k=_BLOCK_WORDS) for _ in range(_BLOCKS)]
        self._blocks = [" ".join(words) for words in self._lists]
        self.words_per_token = words_per_token

    def text(self, key: str, tokens: float) -> bytes:
        """Write a text of so many tokens; at least one word. It needs no escaping in JSON."""
        words = max(1, round(tokens * self.words_per_token))
        rng = Random(key)  # noqa: S311 -- a text, no secret
        begin = rng.choices(_WORDS, k=_MARK_WORDS)
        if words <= _MARK_WORDS:
            return " ".join(begin[:words]).encode()
        whole, rest = divmod(words - _MARK_WORDS, _BLOCK_WORDS)
        places = rng.choices(range(_BLOCKS), k=whole + 1)
        parts = [" ".join(begin), *[self._blocks[place] for place in places[:whole]]]
        if rest:
            parts.append(" ".join(self._lists[places[whole]][:rest]))
        return " ".join(parts).encode()
