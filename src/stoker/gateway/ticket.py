"""What is known about one request from its head to its record? Filled in step by step; the record is made from it."""

from copy import copy

from stoker.base import clock
from stoker.facts.ending import Ending, Outcome
from stoker.facts.live import InFlight
from stoker.facts.record import Gaps, Record, Times, Tokens
from stoker.facts.routes import Endpoint
from stoker.gateway.dialect import MESSAGES, Dialect
from stoker.gateway.identity import Denial, Grant
from stoker.http1.exchange import Exchange


class Ticket:
    """One request."""

    __slots__ = (
        "adapter",
        "arrived",
        "at",
        "attempts",
        "blocks",
        "caller",
        "client",
        "cross",
        "denial",
        "dialect",
        "dispatched",
        "endpoint",
        "exchange",
        "extra",
        "first_byte",
        "grant",
        "id",
        "id_line",
        "incarnation",
        "key",
        "key_id",
        "model",
        "path",
        "probe",
        "prompt_bytes",
        "request_id",
        "service",
        "session",
        "splices",
        "stream",
        "surface",
        "system_bytes",
        "tools_bytes",
        "turn",
        "turn_mark",
    )

    def __init__(self, exchange: Exchange, id_: str, request_id: str, path: str) -> None:
        self.exchange = exchange
        self.id = id_
        self.request_id = request_id
        self.id_line = b"x-request-id: %b\r\n" % request_id.encode()  # for the engine and for the client
        self.path = path
        self.at = clock.now()
        self.arrived = exchange.head_at
        self.surface: Dialect | None = None
        self.grant: Grant | None = None
        self.denial: Denial | None = None
        self.probe: tuple[str, str] | None = None  # endpoint and incarnation that the controller asks for
        self.caller = self.key_id = self.service = self.model = self.endpoint = self.incarnation = self.dialect = ""
        self.client = ""  # the address, where it is noted
        self.cross = b""  # what a browser wants to see
        self.stream = False
        self.attempts = self.turn = self.prompt_bytes = self.tools_bytes = self.system_bytes = 0
        self.dispatched = self.first_byte = 0.0
        self.session = ""
        self.adapter = ""  # the LoRA adapter that was asked for
        self.turn_mark = b""  # of an agent's turn, by which the same is known when it comes again
        self.key = 0  # what the request shares with others, for routing
        self.extra = b""  # header lines for the client besides the request id
        self.blocks: tuple[str, ...] = ()
        self.splices: tuple[str, ...] = ()

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
        made.splices = ()
        return made

    def asks_in(self, dialect: Dialect) -> None:
        """Take the dialect in which the client asks."""
        self.surface = dialect
        self.dialect = dialect.name
        if dialect is MESSAGES:
            self.extra = b"request-id: %b\r\n" % self.request_id.encode()  # where anthropic clients look for it

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
