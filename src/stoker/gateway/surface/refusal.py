"""What does a client hear when an engine refuses? The meaning by one table, the words by the client's dialect."""

from dataclasses import dataclass
from typing import Final

from stoker.gateway.dialect import Dialect, family
from stoker.gateway.ticket import Ticket
from stoker.wire.errors import text_of
from stoker.wire.faults import OVERFLOW_CODE, Fault, Kind, overflow_words

_LEAST_SECONDS: Final = 1
_MOST_SECONDS: Final = 60  # an engine that asks for an hour would park every client


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error answer, ready to be written: as a body, or in the middle of a stream as a message with its code."""

    status: int
    body: bytes
    message: str
    code: str
    retry_after: int = 0


def engine_refuses(fault: Fault, ticket: Ticket, body: bytes, *, after: bytes) -> Refusal:
    """Put an engine's refusal into the client's words. ``after``: the engine's own ``retry-after``."""
    dialect = family(ticket)
    if fault.kind is Kind.OVERFLOW:
        return _ours(dialect, 400, overflow_words(dialect.name, fault), OVERFLOW_CODE)
    if fault.kind is Kind.CREDENTIAL:
        # The engine's own 401 would make a client throw away a key that is good.
        message = f"The endpoint {ticket.endpoint} refuses the gateway's credential; its operator must mend that."
        return _ours(dialect, 502, message, "upstream_credential")
    if fault.kind is Kind.NOT_FOUND:
        message = f"The endpoint {ticket.endpoint} does not know this model or path, although it is routed there."
        return _ours(dialect, 502, message, "upstream_not_found")
    return Refusal(
        status=fault.status,
        body=dialect.errors.in_shape(fault.status, body),
        message=text_of(body) or f"The engine answered {fault.status}.",
        code="server_is_overloaded" if fault.kind is Kind.BUSY else "server_error",
        retry_after=_seconds(after) if fault.kind is Kind.BUSY else 0,
    )


def _ours(dialect: Dialect, status: int, message: str, code: str) -> Refusal:
    body = dialect.errors.body(status, message, code=code)
    return Refusal(status=status, body=body, message=message, code=code)


def _seconds(after: bytes) -> int:
    """Bound what an engine asks for; a date, or nothing, becomes the least."""
    asked = int(after) if after.isdigit() and len(after) < 10 else _LEAST_SECONDS
    return max(_LEAST_SECONDS, min(_MOST_SECONDS, asked))
