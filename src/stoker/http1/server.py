"""How do requests come in and answers go out? An HTTP/1.1 server: bytes and limits, no policy.

The application sees an Exchange twice: ``head`` when the head is complete (it says whether it wants the body) and
``request`` when the body is complete or will never be (``fault`` then holds the status that says why).
"""

import asyncio
import logging
from collections.abc import Callable

from stoker.base import clock
from stoker.http1.connection import App, Connection, Limits
from stoker.http1.exchange import Exchange

_log = logging.getLogger("http1")


class Server:
    """The connections of one listening socket."""

    def __init__(self, app: App, *, limits: Limits | None = None, body_limit: int = 64 << 20) -> None:
        self.app = app
        self.limits = limits or Limits()
        self.body_limit = body_limit
        self.connections: set[Connection] = set()
        self.draining = False
        self.loop = asyncio.get_running_loop()
        self._timer = self.loop.call_later(self.limits.sweep, self._sweep)

    def protocol(self) -> Connection:
        """Make the protocol of a new connection."""
        return Connection(self)

    def guard(self, exchange: Exchange, call: Callable[[Exchange], bool | None]) -> bool:
        """Run the application; what it did not foresee becomes a 500, not a hanging client."""
        try:
            return bool(call(exchange))
        except Exception:  # noqa: BLE001 -- the HTTP edge
            _log.exception("request failed", extra={"fields": {"target": exchange.target.decode("latin-1")[:200]}})
            if exchange.started:
                exchange.abort()
            else:
                exchange.close = True
                exchange.respond(500, *self.app.broken(500, exchange.headers))
            return False

    def drain(self) -> None:
        """Close what is idle; the others close with their answer."""
        self.draining = True
        for connection in list(self.connections):
            connection.draining = True
            if connection.current is None and connection.request is None:
                connection.transport.close()

    def stop(self) -> None:
        """Break off what is left."""
        self._timer.cancel()
        for connection in list(self.connections):
            connection.transport.abort()

    def _sweep(self) -> None:
        now = clock.mono()
        for connection in list(self.connections):
            connection.expire(now)
        self._timer = self.loop.call_later(self.limits.sweep, self._sweep)
