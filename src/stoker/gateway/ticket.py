"""What is known about one request from its head to its record? Filled in step by step; the record is made from it."""

from copy import copy

import msgspec

from stoker.base import clock
from stoker.facts.ending import Ending, Outcome
from stoker.facts.live import InFlight
from stoker.facts.record import Gaps, Record, Times, Tokens
from stoker.facts.routes import Endpoint
from stoker.gateway.dialect import Dialect
from stoker.gateway.identity import Denial, Grant
from stoker.http1.exchange import Exchange
from stoker.wire.ask.outline import Outline
from stoker.wire.request import Asked


class Ticket(msgspec.Struct, eq=False):
    """One request. A struct, because its many defaults are then set in C."""

    exchange: Exchange
    id: str
    request_id: str
    path: str
    id_line: bytes  # for the engine and for the client
    at: float
    arrived: float
    surface: Dialect | None = None
    grant: Grant | None = None
    denial: Denial | None = None
    probe: tuple[str, str] | None = None  # endpoint and incarnation that the controller asks for
    caller: str = ""
    key_id: str = ""
    service: str = ""
    model: str = ""
    endpoint: str = ""
    incarnation: str = ""
    dialect: str = ""
    client: str = ""  # the address, where it is noted
    cross: bytes = b""  # what a browser wants to see
    stream: bool = False
    attempts: int = 0
    turn: int = 0
    answers: int = 1  # that are generated for it
    prompt_bytes: int = 0
    tools_bytes: int = 0
    system_bytes: int = 0
    dispatched: float = 0.0
    first_byte: float = 0.0
    session: str = ""
    adapter: str = ""  # the LoRA adapter that was asked for
    turn_mark: bytes = b""  # of an agent's turn, by which the same is known when it comes again
    key: int = 0  # what the request shares with others, for routing
    extra: bytes = b""  # header lines for the client besides the request id
    outline: Outline | None = None  # of a large request, which is looked at in several turns of the loop
    asked: Asked | None = None  # it was read already
    blocks: tuple[str, ...] = ()
    splices: tuple[str, ...] = ()

    def inherit(self, earlier: "Ticket") -> None:
        """Take over what was already done for an earlier ask of the same."""
        self.endpoint, self.incarnation = earlier.endpoint, earlier.incarnation
        self.attempts, self.dispatched = earlier.attempts, earlier.dispatched
        self.splices = (*earlier.splices, "joined")

    def copy(self, id_: str, *, caller: str, endpoint: Endpoint) -> "Ticket":
        """Make the ticket of a copy of this request, on somebody else's account."""
        made = copy(self)
        made.id, made.caller, made.key_id, made.grant, made.turn_mark = id_, caller, "", None, b""
        made.endpoint, made.incarnation, made.attempts = endpoint.name, endpoint.incarnation, 1
        made.splices, made.session, made.turn = (), "", 0  # it is no turn of anybody's session
        return made

    @property
    def priority(self) -> int:
        """Say how much its caller is preferred."""
        return self.grant.caller.priority if self.grant is not None else 0

    def fields(self) -> bytes:
        """Write the header lines that every answer carries."""
        if self.probe is None:
            return self.id_line + self.cross + self.extra if self.cross or self.extra else self.id_line
        # Workers share one socket: the controller asks until each has answered, so each must say which it is.
        return self.id_line + b"x-stoker-worker: %b\r\n" % self.id.rpartition("-")[0].encode()

    def in_flight(self) -> InFlight:
        """Say what a `lost` record needs, should this worker be killed."""
        return InFlight(
            id=self.id,
            at=self.at,
            caller=self.caller,
            key_id=self.key_id,
            service=self.service,
            model=self.model,
            endpoint=self.endpoint,
            incarnation=self.incarnation,
            dialect=self.dialect,
            path=self.path,
            stream=self.stream,
            request_id=self.request_id,
        )

    def record(
        self,
        ending: Ending,
        status: int,
        *,
        tokens: Tokens | None = None,
        gaps: Gaps | None = None,
        times: Times | None = None,
        price_usd: float | None = None,
    ) -> Record:
        """Make the ledger record."""
        return Record(
            id=self.id,
            request_id=self.request_id,
            at=self.at,
            caller=self.caller,
            key_id=self.key_id,
            service=self.service,
            model=self.model,
            endpoint=self.endpoint,
            incarnation=self.incarnation,
            dialect=self.dialect,
            path=self.path,
            stream=self.stream,
            attempts=self.attempts,
            outcome=ending.outcome,
            detail=ending.detail,
            flags=ending.flags,
            status=status,
            tokens=tokens or NO_TOKENS,
            times=times or Times(total=clock.mono() - self.arrived),
            gaps=gaps or NO_GAPS,
            session=self.session,
            turn=self.turn,
            blocks=self.blocks,
            prompt_bytes=self.prompt_bytes,
            tools_bytes=self.tools_bytes,
            system_bytes=self.system_bytes,
            splices=self.splices,
            price_usd=price_usd,
        )


NO_TOKENS = Tokens()
NO_GAPS = Gaps()


def rejected(why: str) -> Ending:
    """Say that we refused, and by which rule."""
    return Ending(outcome=Outcome.REJECTED, detail=why)
