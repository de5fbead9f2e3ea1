"""How is the door furnished? One place that follows the routes; what is off is None and costs nothing."""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker.facts.door import HEALTH, METRICS, ROOT, AccessLog, Door, Listener
from stoker.gateway.door.address import Network, client
from stoker.gateway.door.cross import Cross
from stoker.gateway.door.journal import Journal
from stoker.gateway.ticket import Ticket
from stoker.http1.exchange import Exchange

_JSON: Final = b"content-type: application/json\r\n"
_TEXT: Final = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
_PATHS: Final = {HEALTH: (b"/healthz", b"/readyz"), ROOT: (b"/",), METRICS: (b"/metrics",)}
_READ: Final = (b"GET", b"HEAD")


class Doorway:
    """The door in force."""

    def __init__(self, folder: Path, worker: int = 0) -> None:
        self._folder = folder
        self._worker = worker
        self._log_rules: AccessLog | None = None
        self._trusted: tuple[Network, ...] = ()
        self._open = frozenset(path for paths in _PATHS.values() for path in paths if path != b"/metrics")
        self.rules = Door()
        self.port = 0
        self.cross: Cross | None = None
        self.journal: Journal | None = None
        self.observes = False  # whether a request must be shown to us at all
        self.ready: Callable[[], bool] = lambda: False
        self.metrics: Callable[[], bytes] = bytes

    def load(self, rules: Door) -> None:
        """Put other rules in force. A log that goes on keeps its file."""
        self.rules = rules
        self._open = frozenset(path for name in rules.open for path in _PATHS.get(name, ()))
        self.cross = Cross(rules.cors) if rules.cors is not None else None
        networks = self.listener.trusted_proxies if self.listener is not None else ()
        self._trusted = tuple(ipaddress.ip_network(each) for each in networks)
        if rules.access_log != self._log_rules:
            self.close()
            self._log_rules = rules.access_log
            path = self._folder / "logs" / f"access-{self._worker}.log"
            self.journal = Journal(rules.access_log, path) if rules.access_log is not None else None
        self.observes = self.cross is not None or self.journal is not None

    @property
    def listener(self) -> Listener | None:
        """What is said about our port; a gateway with one listener means it, whatever its port is called outside."""
        listeners = self.rules.listeners
        mine = next((each for each in listeners if each.port == self.port), None)
        return mine or (listeners[0] if len(listeners) == 1 else None)

    @property
    def problem(self) -> str:
        """What keeps the rules from being wholly in force."""
        return self.journal.problem if self.journal is not None else ""

    def observe(self, ticket: Ticket) -> None:
        """Note from where a request comes: for its answer in a browser, and for the log."""
        exchange = ticket.exchange
        if self.cross is not None:
            ticket.cross = self.cross.fields(exchange.headers)
        if self.journal is not None:
            connection = exchange.connection
            ticket.client = client(connection.peer if connection is not None else "", exchange.headers, self._trusted)

    def opens(self, exchange: Exchange, path: bytes) -> bool:
        """Tell whether somebody without a key may have this."""
        if exchange.method in _READ:
            return path in self._open
        return self.cross is not None and self.cross.is_preflight(exchange.method, exchange.headers)

    def answer(self, exchange: Exchange) -> None:
        """Answer what is open."""
        path = exchange.target.partition(b"?")[0]
        cross = self.cross.fields(exchange.headers) if self.cross is not None else b""
        if exchange.method == b"OPTIONS":
            # Not 204: that must come without a length, and a kept connection lives by lengths.
            exchange.respond(200, self.cross.preflight(exchange.headers) if self.cross is not None else b"", b"")
        elif path == b"/":
            exchange.respond(200, cross, b"")
        elif path == b"/healthz":
            exchange.respond(200, _JSON + cross, b'{"status":"ok"}')
        elif path == b"/metrics":
            exchange.respond(200, _TEXT + cross, self.metrics())
        else:
            ready = self.ready()
            state = b'{"status":"ready"}' if ready else b'{"status":"no endpoint serves"}'
            exchange.respond(200 if ready else 503, _JSON + cross, state)

    def close(self) -> None:
        """Write what is not written yet."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None
