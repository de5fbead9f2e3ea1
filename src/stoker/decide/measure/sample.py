"""What became of one scheduled request? One line of a benchmark's JSONL; bench and evals share it.

All times are seconds since the moment at which the request was *scheduled*, not sent: what a late generator or a full
server adds is waited for by a user, too. 0 where that point was never reached.
"""

from typing import Final

import msgspec

from stoker.decide.measure.classes import GOOD, Class
from stoker.facts.ending import Flag, Outcome
from stoker.facts.record import Gaps, Tokens

OUT_OF_REACH: Final = "bar"  # the detail of a timeout: the bar could not be met any more


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduled request."""

    number: int
    kind: Class
    scheduled_seconds: float  # since the step began
    outcome: Outcome | None = None  # None: nothing came of it because of ourselves
    detail: str = ""
    flags: tuple[Flag, ...] = ()
    status: int = 0
    message: str = ""  # the server's sentence, where it refused or failed
    session: int = 0
    turn: int = 0
    check: str = ""  # the case of the check suite that it carried
    asked_prompt_tokens: int = 0
    asked_output_tokens: int = 0
    shared_tokens: int = 0  # of the prompt: sent before by the same script
    tokens: Tokens = Tokens()
    send_lag_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    first_token_seconds: float = 0.0
    first_visible_seconds: float = 0.0
    last_token_seconds: float = 0.0
    total_seconds: float = 0.0
    gaps: Gaps = Gaps()
    reads: int = 0  # of the socket, that brought tokens
    repairs: tuple[str, ...] = ()  # what a strict client would have choked on
    sent_again: bool = False  # a kept connection had died before a byte of the answer

    @property
    def good(self) -> bool:
        """Whether it is a whole answer."""
        return self.kind in GOOD

    @property
    def measured(self) -> bool:
        """Whether it is in the denominator."""
        return self.kind is not Class.NOT_MEASURED

    @property
    def given_up(self) -> bool:
        """Whether we ended it ourselves, for it was too late for the bar: slow, and no error."""
        return self.outcome is Outcome.TIMEOUT and self.detail == OUT_OF_REACH

    @property
    def tpot_seconds(self) -> float | None:
        """Seconds a token after the first; None where there was only one."""
        more = self.tokens.output - 1
        if more < 1 or not self.first_token_seconds:
            return None
        return (self.last_token_seconds - self.first_token_seconds) / more

    @property
    def hidden_tokens(self) -> int:
        """What was thought and not seen."""
        return self.tokens.reasoning
