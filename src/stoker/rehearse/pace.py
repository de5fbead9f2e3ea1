"""When is what sent? Each wait begins where the last one should have ended, so that nothing drifts."""

import asyncio

from stoker.base import clock
from stoker.rehearse.batch.clockwork import Turn


class Pace:
    """The time of one answer, and what really came of it."""

    __slots__ = ("began", "due", "first", "last", "tokens", "turn")

    def __init__(self, began: float, turn: Turn | None = None) -> None:
        self.turn = turn  # in the batch, where there is one
        self.began = began  # when the request was whole, or left the queue
        self.due = began
        self.first = self.last = 0.0
        self.tokens = 0

    async def wait(self, seconds: float | None) -> None:
        """Wait; None: for ever."""
        if seconds is None:
            await asyncio.Event().wait()
        elif not seconds:
            if self.turn is None:  # a batch gives way by itself, between its tokens
                await asyncio.sleep(0)
        else:
            self.due += seconds
            await asyncio.sleep(max(0.0, self.due - clock.mono()))

    def sends(self, tokens: int) -> None:
        """Note tokens that go out now."""
        if tokens:
            self.last = clock.mono()
            self.first = self.first or self.last
            self.tokens += tokens

    @property
    def truth(self) -> dict[str, float]:
        """What a client should have measured."""
        first, last = (at - self.began if at else 0.0 for at in (self.first, self.last))
        told = {"first_token_seconds": first, "last_token_seconds": last, "tokens": self.tokens}
        return {**told, **self.turn.truth} if self.turn is not None else told
