"""What does a worker say on its own port? Metrics, its live state and whether it is there. Loopback only."""

from collections.abc import Callable
from typing import Final

import msgspec

from stoker.facts.live import Live
from stoker.gateway.meter import Meter
from stoker.gateway.metrics import page
from stoker.http1.exchange import Exchange
from stoker.wire import errors

_JSON: Final = b"content-type: application/json\r\n"
_TEXT: Final = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"


class Admin:
    """The application of the admin port."""

    def __init__(self, meter: Meter, live: Callable[[], Live], worker: int) -> None:
        self._meter = meter
        self._live = live
        self._worker = worker

    def head(self, exchange: Exchange) -> bool:
        """Take no body."""
        return exchange.method in (b"GET", b"HEAD")

    def request(self, exchange: Exchange) -> None:
        """Answer."""
        path = exchange.target.partition(b"?")[0]
        if exchange.method not in (b"GET", b"HEAD"):
            exchange.respond(405, _JSON, errors.body(405, "Use GET here.", code="method_not_allowed"))
        elif path == b"/metrics":
            exchange.respond(200, _TEXT, page(self._meter, self._live(), self._worker))
        elif path == b"/live":
            exchange.respond(200, _JSON, msgspec.json.encode(self._live()))
        elif path == b"/healthz":
            exchange.respond(200, _JSON, b'{"status":"ok"}')
        else:
            exchange.respond(404, _JSON, errors.body(404, "There is no such page here.", code="unknown_url"))

    def broken(self, status: int) -> bytes:
        """Give the error body for a head that could not be read."""
        return errors.body(status, "The request could not be read.")
