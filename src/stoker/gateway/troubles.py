"""What can go wrong between a client and an engine, in the words that the client gets?"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from stoker.facts.ending import Ending, Outcome
from stoker.http1.pool import End
from stoker.wire.faults import OVERFLOW_CODE, Fault, Kind, overflow_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What went wrong, as a client is told."""

    status: int
    code: str
    message: str
    kind: str = ""  # the error's type, where it is not the one of its status
    retry_after: int = 0


UNACCOUNTED: Final = Trouble(
    status=503,
    code="accounting_unavailable",
    message="The request cannot be accounted for: the ledger's disk is full.",
    retry_after=30,
)
NO_SLOT: Final = Trouble(status=429, code="queue_full", message="All slots are taken and the queue is full.")
SHED: Final = Trouble(
    status=429, code="queue_full", message="A request of a better rank took this one's place in the full queue."
)
NOBODY: Final = Trouble(
    status=503, code="no_endpoint", message="No endpoint of this model can serve right now.", retry_after=5
)
CUT: Final = Trouble(
    status=502, code="upstream_truncated", message="The engine's answer broke off.", kind="upstream_error"
)
REVOKED: Final = Trouble(
    status=401,
    code="credential_revoked",
    message="The credential of this request was revoked.",
    kind="authentication_error",
)
TOO_LARGE: Final = Trouble(status=502, code="upstream_too_large", message="The engine's answer is too large.")
UNREACHABLE: Final = Trouble(status=502, code="upstream_unreachable", message="The engine could not be reached.")
NO_CONNECTION: Final = Trouble(
    status=504,
    code="upstream_timeout",
    message="The engine could not be reached in time.",
    kind="timeout_error",
)
STOPPING: Final = Trouble(
    status=503,
    code="gateway_stopping",
    message="The gateway is stopping and the answer took longer than its drain.",
)

POISON: Final = Trouble(
    status=422,
    code="poison_request",
    message="Two engines died while this request ran. It is not tried again before ten minutes have passed.",
)
SUPERSEDED: Final = Trouble(
    status=409,
    code="superseded",
    message="The same turn of this session was asked for again; that request has the answer.",
)


def overdue(limit: str) -> Trouble:
    """Name the time limit that is over."""
    return Trouble(status=504, code="upstream_timeout", message=f"The {limit} limit is over.", kind="timeout_error")


def garbled(why: str) -> Trouble:
    """Say that an engine's bytes make no sense."""
    return Trouble(status=502, code="upstream_garbled", message=f"The engine's answer cannot be read: {why}.")


def too_long(dialect: str, *, prompt: int, output: int, context: int, sure: bool) -> Trouble:
    """Say that a prompt does not fit, in the words on which clients of a dialect act; ``sure``: it was counted."""
    fault = Fault(kind=Kind.OVERFLOW, status=400, prompt=prompt, output=output, context=context, least=not sure)
    return Trouble(status=400, code=OVERFLOW_CODE, message=overflow_words(dialect, fault))


def failed(status: int) -> Ending:
    """End with an error that is told by this status."""
    return Ending(outcome=Outcome.ERROR, detail=str(status))


class Failure(NamedTuple):
    """What the client is told, and what the record says."""

    trouble: Trouble
    ending: Ending


def unreached(end: End) -> Failure:
    """Say that an engine gave no answer at all."""
    if end is End.TIMEOUT:
        return Failure(NO_CONNECTION, Ending(outcome=Outcome.TIMEOUT, detail="connect"))
    if end is End.CONNECT:
        return Failure(UNREACHABLE, failed(502))
    return Failure(CUT, Ending(outcome=Outcome.TRUNCATED, detail="reset" if end is End.RESET else "clean"))


def untranslatable(why: str) -> Trouble:
    """Say what of a request cannot be said to the engine."""
    return Trouble(status=400, code="untranslatable", message=why)


def unhelped(why: str) -> Trouble:
    """Say that a large request could not be translated this time."""
    message = f"The request is large and could not be translated: {why}."
    return Trouble(status=503, code="translation_failed", message=message, retry_after=1)
