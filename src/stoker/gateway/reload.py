"""Which routes and callers are in force? Read when they change; a bad file keeps the last good one and says why."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from stoker.base import clock
from stoker.facts.door import Auth, Door, Jwt
from stoker.facts.routes import Callers, Routes, open_callers, open_routes
from stoker.gateway.app import App
from stoker.gateway.fleet import Fleet
from stoker.gateway.identity import Identities
from stoker.gateway.identity.keyring import Keyring
from stoker.gateway.identity.tokens import Judge

_log = logging.getLogger("gateway.reload")
_MAX_PROBE_KEY: Final = 4096
_GONE: Final = (0, 0, 0)  # the stat of no file: whatever comes back is read
_Value = TypeVar("_Value")


class Watched(Generic[_Value]):
    """One file, read when its inode, size or time of change differs."""

    def __init__(self, path: Path, parse: Callable[[bytes], _Value]) -> None:
        self.path = path
        self.problem = ""
        self._parse = parse
        self._seen: tuple[int, int, int] | None = None

    def poll(self) -> _Value | None:
        """Give the new value, or None when nothing changed or the file is bad or missing."""
        try:
            stat = self.path.stat()
            seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if seen == self._seen:
                return None
            data = self.path.read_bytes()
        except FileNotFoundError:
            if self._seen is not None:  # never there is a beginning; no longer there is a fault
                self._refuse("it has gone", seen=_GONE)
            return None
        except OSError as error:
            self._refuse(error.strerror or str(error), seen=None)
            return None
        self._seen = seen
        try:
            value = self._parse(data)
        except ValueError as error:
            self._refuse(str(error), seen=seen)
            return None
        self.problem = ""
        return value

    def _refuse(self, why: str, *, seen: tuple[int, int, int] | None) -> None:
        """Keep the last good value, and say why; the log hears of it once."""
        problem = f"{self.path.name}: {why}"
        if problem != self.problem:
            _log.warning("bad snapshot", extra={"fields": {"file": self.path.name, "why": why}})
        self._seen, self.problem = seen, problem


class Policy:
    """The files that the controller writes, and the parts of the gateway that follow them."""

    def __init__(self, folder: Path, app: App, fleet: Fleet) -> None:
        self._folder = folder
        self._app = app
        self._fleet = fleet
        self._routes: Watched[Routes] = Watched(folder / "routes.json", open_routes)
        self._callers: Watched[Callers] = Watched(folder / "callers.json", _open_callers)
        self._key: Watched[bytes] = Watched(folder / "keys" / "probe.key", _open_key)
        self._probe_key = b""
        self._known = Callers(generation=0)
        self._auth = Auth()
        self._door: Door | None = None
        self._ring: Keyring | None = None
        self._ring_rules: Jwt | None = None
        self.callers_generation = 0
        app.probe_key = self.probe_key

    @property
    def problem(self) -> str:
        """Why the newest files are not, or not wholly, in force."""
        ring = self._ring.problem if self._ring is not None else ""
        files = (self._routes.problem, self._callers.problem, self._key.problem)
        problems = (*files, self._fleet.problem, ring, self._app.door_problem)
        return "; ".join(problem for problem in problems if problem)

    def poll(self) -> None:
        """Put in force what has changed."""
        callers, routes = self._callers.poll(), self._routes.poll()
        auth = routes.door.auth if routes is not None else self._auth
        if routes is not None and routes.door != self._door:
            self._door = routes.door
            self._app.furnish(routes.door)
        if callers is not None or auth != self._auth:
            self._admit(callers or self._known, auth)
        if self._ring is not None:
            self._ring.poll(clock.now())
        if routes is not None:
            if routes.probe_key_file:
                path = self._folder / routes.probe_key_file
                if path != self._key.path:
                    self._key = Watched(path, _open_key)
            self._fleet.load(routes)
        self._probe_key = self._key.poll() or self._probe_key

    def _admit(self, callers: Callers, auth: Auth) -> None:
        """Put other callers, or other ways to prove who one is, in force. Known signing keys stay known."""
        rules = auth.jwt
        if rules != self._ring_rules:
            self._ring = Keyring(rules, self._folder) if rules is not None else None
            self._ring_rules = rules
        judge = Judge(rules, self._ring) if rules is not None and self._ring is not None else None
        self._known, self._auth = callers, auth
        self.callers_generation = callers.generation
        self._app.admit(Identities(callers, auth, judge), cut=auth.cut_revoked)

    def probe_key(self) -> bytes:
        """Give the key in force; it may have been made a moment ago."""
        self._probe_key = self._key.poll() or self._probe_key
        return self._probe_key


def _open_callers(data: bytes) -> Callers:
    callers = open_callers(data)
    Identities(callers)  # a hash that is no hash is found here, while the old callers are still in force
    return callers


def _open_key(data: bytes) -> bytes:
    key = data.strip()
    if not 16 <= len(key) <= _MAX_PROBE_KEY:
        raise ValueError("not a key: it has fewer than 16 or more than 4096 bytes")
    return key
