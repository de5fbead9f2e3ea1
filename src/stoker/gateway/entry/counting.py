"""How many tokens would this prompt be, where no engine answers that in the client's dialect?

An engine with a tokeniser is asked in its own way. Where there is none the answer is an estimate, and says so in a
header: agents ask to know when to compact, for which an estimate is better than an error.
"""

from typing import Final

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.decide.route import route
from stoker.drivers.aside.errands import LARGE_BYTES
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Tokens
from stoker.gateway.answer import refuse
from stoker.gateway.dialect import CHAT, MESSAGES, family
from stoker.gateway.fleet import ServiceState, Upstream
from stoker.gateway.house import House
from stoker.gateway.steer.census import Census
from stoker.gateway.ticket import Ticket
from stoker.gateway.troubles import UNACCOUNTED
from stoker.wire import tokenise
from stoker.wire.pairs import Pair, prepare
from stoker.wire.request import Asked
from stoker.wire.say.models import token_count

_JSON: Final = b"content-type: application/json\r\n"
_ESTIMATED: Final = b"x-stoker-estimated: true\r\n"
_SECONDS: Final = 5.0


class Counting:
    """One question for the size of a prompt."""

    __slots__ = ("_census", "_house", "_service", "_since", "ticket")

    def __init__(self, house: House, ticket: Ticket, service: ServiceState) -> None:
        self._house = house
        self._service = service
        self._since = clock.mono()
        self._census: Census | None = None
        self.ticket = ticket

    def begin(self, asked: Asked, body: bytes) -> None:
        """Ask an engine, or estimate at once."""
        self._house.active.add(self)
        self.ticket.exchange.listener = self
        up = self._endpoint()
        question = None
        # A large one is estimated: to translate it here would hold everybody up, for a figure.
        if up is not None and tokenise.asks(up.spec.engine) and len(body) <= LARGE_BYTES:
            pair = Pair(client=MESSAGES.name, upstream=CHAT.name, engine=up.spec.engine)
            try:
                change = prepare(body, asked, pair=pair, cap=1, model=up.spec.upstream_model, stream=False)
            except Invalid:
                change = None
            question = tokenise.question(up.spec.engine, change.body) if change is not None else None
        if up is None or question is None:
            self._answer(None)
            return
        self._census = Census(up, self._answer)
        self._census.ask(question, connect=self._service.spec.timeouts.connect)

    def _endpoint(self) -> Upstream | None:
        upstreams = self._house.fleet.upstreams
        targets = self._service.targets.get(CHAT.name, ())
        found = route(targets, upstreams, now=clock.mono(), draw=0.0, key=self.ticket.key)
        return upstreams.get(found.endpoint)

    def _answer(self, tokens: int | None) -> None:
        """Give the count, or the middle of what it may be."""
        self._census = None
        fields = _JSON + self.ticket.fields()
        if tokens is None:
            least, most = self._service.ratio.band(self.ticket.prompt_bytes)
            tokens = (least + most) // 2
            fields += _ESTIMATED
        exchange = self.ticket.exchange
        written = self._end(Ending(outcome=Outcome.COMPLETE), 200)
        if written:
            exchange.respond(200, fields, token_count(tokens))
        else:
            refuse(self.ticket, family(self.ticket), UNACCOUNTED)

    def _end(self, ending: Ending, status: int) -> bool:
        self._house.active.discard(self)
        self.ticket.exchange.listener = None
        return self._house.meter.write(self.ticket.record(ending, status, tokens=Tokens()), self.ticket.client)

    # What the client's connection and the clock report.

    def client_gone(self) -> None:
        """Stop asking."""
        self._drop()
        self._end(Ending(outcome=Outcome.CANCELLED), 499)

    def pause(self) -> None:
        """Nothing is streamed."""

    def resume(self) -> None:
        """Nothing is streamed."""

    def tick(self, now: float) -> None:
        """Estimate where the engine takes too long."""
        if now - self._since > _SECONDS:
            self.expire()

    def expire(self) -> None:
        """Answer now, with what is known."""
        self._drop()
        self._answer(None)

    def _drop(self) -> None:
        census, self._census = self._census, None
        if census is not None:
            census.drop()
