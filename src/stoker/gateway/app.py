"""What does the gateway do with a request? Who asks comes first, and before a byte of the body; then what is asked."""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.decide.admit import output_cap
from stoker.facts.door import Door
from stoker.facts.ending import Ending, Outcome
from stoker.facts.probe import CALLER, HEADER, verify
from stoker.facts.routes import Callers, Service
from stoker.gateway.answer import Answer, refuse
from stoker.gateway.body import Body
from stoker.gateway.dialect import BY_PATH, COUNT_TOKENS, MESSAGES, Dialect, family, switch
from stoker.gateway.entry.counting import Counting
from stoker.gateway.fleet import ServiceState
from stoker.gateway.forward import Forward
from stoker.gateway.house import House
from stoker.gateway.identity import Denial, Grant, Identities
from stoker.gateway.steer.key import given_session, routing_key
from stoker.gateway.surface import catalog
from stoker.gateway.ticket import Ticket, rejected
from stoker.gateway.troubles import UNACCOUNTED, Trouble
from stoker.http1.connection import LARGE_BYTES
from stoker.http1.exchange import Exchange
from stoker.wire import errors, normalise, prompt
from stoker.wire.ask.outline import Outline
from stoker.wire.pairs import read
from stoker.wire.request import Asked

_JSON: Final = b"content-type: application/json\r\n"
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
_SHOWN: Final = {path: path.decode() for path in BY_PATH}
_PROBE_HEADER: Final = HEADER.encode()
_READ: Final = (b"GET", b"HEAD")
_ANTHROPIC: Final = b"/v1/messages"
_FORGED: Final = Denial(code="invalid_probe", message="The probe header is not valid.")


class _Known(msgspec.Struct, frozen=True):
    """Whom a connection belongs to, as long as these callers are in force."""

    shown: bytes
    by: Identities
    grant: Grant


class App:
    """The public port."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._started = int(clock.now())
        house.door.ready = self._ready
        self.identities = Identities(Callers(generation=0))
        self.probe_key: Callable[[], bytes] = bytes

    # What the server calls.

    def head(self, exchange: Exchange) -> bool:
        """Find out who asks; the body is wanted only from somebody, and only where one is read."""
        path = exchange.target
        dialect = BY_PATH.get(path)
        if dialect is None:
            path = path.partition(b"?")[0]
            dialect = BY_PATH.get(path)
            if self._house.door.opens(exchange, path):
                return True
        elif exchange.method != b"POST" and self._house.door.opens(exchange, path):
            return True
        ticket = self._ticket(exchange, _SHOWN.get(path) or path[:256].decode("utf-8", "replace"))
        if dialect is MESSAGES or dialect is COUNT_TOKENS or (dialect is None and path.startswith(_ANTHROPIC)):
            ticket.extra = b"request-id: %b\r\n" % ticket.request_id.encode()  # where anthropic clients look for it
        if dialect is None:
            return False
        ticket.surface, ticket.dialect = dialect, dialect.name
        return ticket.denial is None and exchange.method == b"POST"

    def _ticket(self, exchange: Exchange, path: str) -> Ticket:
        """Open what is known of a request, beginning with who asks."""
        headers, house, now = exchange.headers, self._house, clock.now()
        request_id = id_ = house.meter.name()
        given = headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            request_id = given.decode()
        line = b"x-request-id: %b\r\n" % request_id.encode()
        exchange.note = ticket = Ticket(exchange, id_, request_id, path, line, now, exchange.head_at)
        if house.door.observes:
            house.door.observe(ticket)
        exchange.body_limit = house.fleet.routes.body_bytes
        if _PROBE_HEADER in headers:
            ticket.caller = CALLER
            ticket.probe = verify(self.probe_key(), headers[_PROBE_HEADER].decode("latin-1"), now=now)
            ticket.denial = None if ticket.probe is not None else _FORGED
            return ticket
        found = self._who(exchange, headers, now)
        if isinstance(found, Grant):
            ticket.grant = found
            ticket.caller, ticket.key_id = found.caller.name, found.key.id
        else:
            ticket.denial = found
            ticket.caller, ticket.key_id = found.caller, found.key_id
        return ticket

    def _who(self, exchange: Exchange, headers: dict[bytes, bytes], now: float) -> Grant | Denial:
        """Find out who asks; a kept connection that shows the same key again needs no second hash of it."""
        connection, shown, identities = exchange.connection, headers.get(b"authorization"), self.identities
        known = connection.known if connection is not None else None
        if type(known) is _Known and known.shown == shown and known.by is identities and b"x-api-key" not in headers:
            return known.grant
        found = identities.identify(headers, now=now)
        if connection is not None and shown is not None and isinstance(found, Grant) and found.lasting:
            connection.known = _Known(shown, identities, found)
        return found

    def request(self, exchange: Exchange) -> None:
        """Answer."""
        ticket = exchange.note
        if not isinstance(ticket, Ticket):
            self._house.door.answer(exchange)
            return
        dialect = ticket.surface
        denial = ticket.denial
        if denial is not None:
            self._deny(ticket, denial)
        elif exchange.fault:
            self._fault(ticket, exchange.fault)
        elif dialect is None:
            self._other(ticket, exchange)
        elif exchange.method != b"POST":
            self._wrong_method(ticket, "POST")
        elif switch(dialect) not in self._house.fleet.routes.dialects:
            message = f"The dialect {dialect.name} is switched off on this gateway."
            self._refuse(ticket, Trouble(status=404, code="unknown_url", message=message), "dialect")
        else:
            self._call(ticket, dialect, exchange)

    def broken(self, status: int, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        """Write the error for a head that could not be read, with what every answer carries."""
        texts = {
            408: "The request did not come in time.",
            414: "The URL is too long.",
            431: "The headers are too large.",
        }
        name, cross = self._house.meter.name().encode(), self._house.door.cross
        fields = b"%bx-request-id: %b\r\n%b" % (_JSON, name, cross.fields(headers) if cross is not None else b"")
        return fields, errors.body(status, texts.get(status, "The request could not be read."))

    # Who.

    def admit(self, identities: Identities, *, cut: bool) -> None:
        """Put other callers in force; what a revoked credential has open ends only where its owner wants that."""
        self.identities = identities
        for request in list(self._house.active):
            if isinstance(request, Forward) and identities.cut(request.ticket.grant, by_default=cut):
                request.revoke()

    def _deny(self, ticket: Ticket, denial: Denial) -> None:
        trouble = Trouble(
            status=denial.status, code=denial.code, message=denial.message, retry_after=denial.retry_after
        )
        self._refuse(ticket, trouble, "auth")

    def _refuse(self, ticket: Ticket, trouble: Trouble, why: str) -> None:
        self._house.meter.write(ticket.record(rejected(why), trouble.status), ticket.client)
        refuse(ticket, family(ticket), trouble)

    def _wrong_method(self, ticket: Ticket, right: str) -> None:
        ticket.extra += b"allow: %b\r\n" % right.encode()
        self._refuse(ticket, Trouble(status=405, code="method_not_allowed", message=f"Use {right} here."), "method")

    def _fault(self, ticket: Ticket, status: int) -> None:
        if status == 413:
            message = f"The body is larger than {self._house.fleet.routes.body_bytes} bytes."
            self._refuse(ticket, Trouble(status=413, code="body_too_large", message=message), "body")
        else:
            self._refuse(
                ticket, Trouble(status=408, code="request_timeout", message="The body came too slowly."), "slow"
            )

    # What needs no key.

    def furnish(self, rules: Door) -> None:
        """Put another door in force."""
        self._house.door.load(rules)
        self._house.meter.journal = self._house.door.journal

    @property
    def door_problem(self) -> str:
        """What keeps the door from being as the routes want it."""
        return self._house.door.problem

    def _ready(self) -> bool:
        fleet = self._house.fleet
        return fleet.routes.generation > 0 and any(up.serving for up in fleet.upstreams.values())

    # Models.

    def _other(self, ticket: Ticket, exchange: Exchange) -> None:
        path = exchange.target.partition(b"?")[0]
        if path != catalog.PATH and not path.startswith(catalog.PATH + b"/"):
            message = f"There is no {exchange.method.decode()} {ticket.path} here."
            self._refuse(ticket, Trouble(status=404, code="unknown_url", message=message), "not_found")
            return
        if exchange.method not in _READ:
            self._wrong_method(ticket, "GET")
            return
        mine, name = catalog.names(self._house.fleet, ticket.grant), catalog.asked_for(path)
        if name is not None:
            ticket.model = name[:256]
            if name not in mine:
                self._refuse(ticket, catalog.missing(name, mine), "model")
                return
        body = catalog.page(mine, name, headers=exchange.headers, created=self._started)
        if self._house.meter.write(ticket.record(Ending(outcome=Outcome.COMPLETE), 200), ticket.client):
            exchange.respond(200, _JSON + ticket.fields(), body)
        else:
            refuse(ticket, family(ticket), UNACCOUNTED)

    # Generation.

    def _read(self, ticket: Ticket, dialect: Dialect, exchange: Exchange) -> Asked | None:
        """Read what is asked; None: it was refused, or it is large and goes on in another turn of the loop."""
        if ticket.asked is not None:
            return ticket.asked
        if exchange.headers.get(b"content-encoding", b"identity") != b"identity":
            message = "Bodies are taken without content-encoding."
            self._refuse(ticket, Trouble(status=415, code="content_encoding", message=message), "body")
            return None
        large, connection = exchange.size > LARGE_BYTES, exchange.connection
        if large and connection is not None:
            outline = ticket.outline
            if outline is None:
                outline, ticket.outline = None, Outline(exchange.body)
            if outline is None or not outline.more():
                connection.again(exchange)
                return None
        try:
            asked = self._told(ticket, dialect) or read(dialect.name, exchange.body)
        except Invalid as error:
            self._refuse(ticket, Trouble(status=400, code="invalid_body", message=str(error)), "body")
            return None
        if large and connection is not None:
            ticket.asked = asked
            connection.again(exchange)
            return None
        return asked

    @staticmethod
    def _told(ticket: Ticket, dialect: Dialect) -> Asked | None:
        """Read what was found of a large request in earlier turns of the loop. Raises Invalid."""
        outline, ticket.outline = ticket.outline, None
        return outline.asked(lambda small: read(dialect.name, small)) if outline is not None else None

    def _call(self, ticket: Ticket, dialect: Dialect, exchange: Exchange) -> None:
        asked = self._read(ticket, dialect, exchange)
        if asked is None:
            return
        body = exchange.body
        exchange.forget()
        talk = self._describe(ticket, dialect, asked)
        service = self._service(ticket, asked.model)
        if service is None or (ticket.grant is not None and not ticket.grant.may_use(service.spec.name)):
            mine = catalog.names(self._house.fleet, ticket.grant)
            self._refuse(ticket, catalog.missing(asked.model, mine), "model")
            return
        ticket.service = service.spec.name
        if service.spec.strip and dialect.capped:
            body, stripped = normalise.strip(body, service.spec.strip)
            if stripped:
                asked, talk = read(dialect.name, body), b""
            ticket.splices = tuple(f"normalised:{rule}" for rule in stripped)
        self._steer(ticket, service, asked=asked, body=body, talk=talk)
        if dialect is COUNT_TOKENS and dialect.name not in service.spoken:
            Counting(self._house, ticket, service).begin(asked, body)
        elif ticket.probe is None and service.speaks_only_others(dialect.name):
            message = f"The model '{asked.model}' has no engine that speaks {dialect.name}."
            self._refuse(ticket, Trouble(status=400, code="unsupported_endpoint", message=message), "dialect")
        else:
            self._forward(ticket, dialect, service, asked=asked, body=body)

    def _steer(self, ticket: Ticket, service: ServiceState, *, asked: Asked, body: bytes, talk: bytes) -> None:
        """Note what the choice of an endpoint rests on; ``talk``: the conversation, where there is nothing else."""
        spec = service.spec
        if spec.adapters:
            ticket.adapter = spec.adapters.get(asked.model, "")
        given = given_session(service, ticket.exchange.headers, asked)
        if given:
            ticket.session = prompt.session(given, salt=self._house.salt)
            if spec.duplicates != "Allow":
                ticket.turn_mark = self._house.again.turn_mark(ticket.key_id, given + ticket.path.encode(), body)
        if service.several:
            ticket.key, normalised = routing_key(service, given, asked, talk)
            if normalised:
                ticket.extra += b"x-stoker-normalised: %b\r\n" % ",".join(normalised).encode()

    def _forward(self, ticket: Ticket, dialect: Dialect, service: ServiceState, *, asked: Asked, body: bytes) -> None:
        fleet = self._house.fleet
        limit = fleet.routes.max_concurrent
        full = limit and len(self._house.active) >= limit and ticket.probe is None
        if full and not fleet.shed(service, priority=ticket.priority, now=clock.mono(), everywhere=True):
            message = "The gateway has as many requests as it may have at once."
            self._refuse(
                ticket, Trouble(status=503, code="overloaded", message=message, retry_after=2), "max_concurrent"
            )
            return
        caller = ticket.grant.output_cap(service.spec.name) if ticket.grant is not None else 0
        cap = output_cap(service=service.spec.max_output_tokens, caller=caller)
        stream_upstream = service.stream_upstream
        if ticket.probe is not None:
            stream_upstream = fleet.upstreams[ticket.probe[0]].spec.stream_upstream
        sent = Body(dialect, asked, body, cap=cap, stream_upstream=stream_upstream, ticket=ticket)
        answer = Answer(ticket, dialect, sent.voice)
        Forward(self._house, ticket, service, answer=answer, body=sent).begin()

    def _describe(self, ticket: Ticket, dialect: Dialect, asked: Asked) -> bytes:
        """Note what the record says of a request; gives the conversation, where that is all that there is to read."""
        ticket.model = asked.model[:256]
        ticket.stream = bool(asked.stream) and dialect.streams
        ticket.answers = asked.answers
        size = len(asked.messages)
        if 0 < size <= prompt.REACH and not asked.mixed:
            talk = head = turns = bytes(asked.messages)  # nothing but a conversation: one copy serves everything
        else:
            talk, head, turns, size = b"", asked.head(prompt.REACH), asked.turns, asked.size
            ticket.tools_bytes, ticket.system_bytes = len(asked.tools), len(asked.system) + len(asked.instructions)
        ticket.prompt_bytes = size
        ticket.blocks = prompt.blocks(prompt.plain(head), salt=self._house.salt)
        ticket.turn = prompt.turn(turns)
        return talk

    def _service(self, ticket: Ticket, model: str) -> ServiceState | None:
        """Find the service of a model; a probe names its endpoint, which may not be in any service yet."""
        fleet = self._house.fleet
        if ticket.probe is None:
            return fleet.by_model.get(model)
        up = fleet.upstreams.get(ticket.probe[0])
        if up is None or up.spec.incarnation != ticket.probe[1]:
            return None
        owners = [
            state for state in fleet.services.values() if any(up.spec.name in t.endpoints for t in state.spec.targets)
        ]
        return owners[0] if owners else ServiceState(Service(name="", models=(), targets=()))
