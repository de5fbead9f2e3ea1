"""What the scripted engine answers, how fast, and which faults it has. A file of JSON, read again when it changes."""

from typing import Literal

import msgspec

from stoker.base.errors import Fault, Invalid


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One behaviour. Counts of tokens are of the answer; None: that fault does not happen."""

    text: str = "The stoker feeds the fire, and the fire drives the engine."
    reasoning: str = ""  # thoughts before the answer
    tokens: int = 0  # how long the answer is; 0: as long as the text
    calls: int = 1  # how many tool calls it makes when it is given tools; 0: it answers with text
    tokens_per_second: float = 0.0  # 0: as fast as the machine can
    first_token_seconds: float = 0.0
    every: int = 1  # the faults below happen to every n-th request

    raw_tool_markup: bool = False  # as with no tool parser
    raw_reasoning_markup: bool = False  # as with no reasoning parser
    cut_after_tokens: int | None = None
    cut: Literal["clean", "reset"] = "clean"
    stall_after_tokens: int | None = None
    error_after_tokens: int | None = None  # an error frame inside the stream
    crash_after_tokens: int | None = None
    status: int = 0  # refuse with this status
    retry_after_seconds: int = 0
    missing: tuple[Literal["finish", "usage", "done"], ...] = ()
    model: str = ""  # it lists and names another model than it was asked to serve
    hang: bool = False  # takes requests and never answers, while its health is good
    health_status: int = 200
    ignore_sigterm: bool = False


def parse(data: bytes) -> Script:
    """Read a script; raises Invalid naming the field."""
    try:
        return msgspec.json.decode(data, type=Script)
    except msgspec.DecodeError as error:
        raise Invalid(Fault(message=f"no valid script: {error}")) from error


def calm(script: Script) -> Script:
    """The same script without its faults, for the requests between every n-th one."""
    faultless = Script()
    kept = (
        "text",
        "reasoning",
        "tokens",
        "calls",
        "tokens_per_second",
        "first_token_seconds",
        "every",
        "ignore_sigterm",
    )
    return msgspec.structs.replace(faultless, **{name: getattr(script, name) for name in kept})
