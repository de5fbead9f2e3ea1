"""Which prompts begin alike? A chain of hashes over blocks of words, as engines have it over blocks of tokens."""

from collections.abc import Sequence


def hashes(words: Sequence[str], block_tokens: int) -> tuple[int, ...]:
    """Hash each whole block with all that comes before it. Spaces do not count: clients trim what they send back."""
    chain, found = 0, []
    for at in range(0, len(words) - block_tokens + 1, block_tokens):
        chain = hash((chain, *map(str.strip, words[at : at + block_tokens]))) or 1
        found.append(chain)
    return tuple(found)
