"""Did this request kill engines, so that it must not be asked again?

1. Whoever runs when an engine dies is under suspicion, the innocent with the guilty: one death proves nothing.
2. A request that was there at two deaths is refused at the third try. The chance that an innocent one is there twice is
   small, and an answer frees it.
3. After ten minutes all is forgotten: engines are mended, and the same words may then be harmless.
"""

from typing import Final

STRIKES: Final = 2
FORGET_SECONDS: Final = 600.0


def poisonous(strikes: int, *, struck_at: float, now: float) -> bool:
    """Whether to refuse."""
    return strikes >= STRIKES and now - struck_at < FORGET_SECONDS
