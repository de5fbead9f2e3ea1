"""Is the port open, and under which certificate? Both follow their files and the routes; no open connection notices.

1. A new certificate counts from the next handshake on. One that cannot be used leaves the old one in force.
2. Certificate and key are first loaded into a context of their own: a pair that does not fit would leave a context
   half new, and every handshake after it would fail.
3. Without TLS only loopback is served, unless somebody said that this is meant.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from stoker.base.errors import Driver
from stoker.drivers import files
from stoker.facts.door import Listener

_HANDSHAKE: Final = 10.0
_log = logging.getLogger("gateway.front")


class Pair(NamedTuple):
    """Certificate and key, by their paths; both empty: no TLS."""

    cert_file: str = ""
    key_file: str = ""


_PLAIN: Final = Pair()


class Certificate:
    """One pair of files, and the newest usable content of both."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.problem = ""
        self.context: ssl.SSLContext | None = None  # what listens; it hands each handshake on to the newest one
        self._newest: ssl.SSLContext | None = None
        self._seen: tuple[object, object] | None = None

    def poll(self) -> None:
        """Read the files when they have changed."""
        try:
            seen = (files.stamp(Path(self.pair.cert_file)), files.stamp(Path(self.pair.key_file)))
            if seen == self._seen:
                return
            self._seen = seen
            self._newest = _load(self.pair)
        except (Driver, OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self._refuse(str(error))
            return
        if self.context is None:
            self.context = _load(self.pair)
            self.context.sni_callback = self._choose
        self.problem = ""
        _log.info("certificate", extra={"fields": {"file": self.pair.cert_file}})

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._newest is not None:
            connection.context = self._newest

    def _refuse(self, why: str) -> None:
        problem = f"certificate {self.pair.cert_file}: {why}"
        if problem != self.problem:
            _log.warning("certificate", extra={"fields": {"why": problem}})
        self.problem = problem


class Front:
    """The public socket of one worker."""

    def __init__(self, public: socket.socket, factory: Callable[[], asyncio.Protocol]) -> None:
        self._public = public
        self._factory = factory
        self._server: asyncio.Server | None = None
        self._in_force: Certificate | None = None
        self._next: Certificate | None = None
        self.given = _PLAIN  # from the command line: it counts over what the routes say
        self.insecure = False
        self.problem = ""

    @property
    def cert_file(self) -> str:
        """The certificate under which connections are taken; empty: none."""
        return self._in_force.pair.cert_file if self._in_force is not None else ""

    async def follow(self, listener: Listener | None) -> None:
        """Open the port, or bring it up to date."""
        named = Pair(listener.cert_file, listener.key_file) if listener is not None else _PLAIN
        wanted = self.given if self.given.cert_file else named
        if not wanted.cert_file:
            await self._plainly()
            return
        if self._next is None or self._next.pair != wanted:
            same = self._in_force is not None and self._in_force.pair == wanted
            self._next = self._in_force if same else Certificate(wanted)
        certificate = self._next
        if certificate is None:
            return
        certificate.poll()
        self.problem = certificate.problem
        if certificate.context is not None and certificate is not self._in_force:
            await self._open(certificate.context)
            self._in_force = certificate

    async def _plainly(self) -> None:
        if not (self.insecure or self.is_local):
            self.problem = "other machines reach this port: it needs a certificate, or --insecure-bind"
            return
        self.problem, self._next = "", None
        if self._server is None or self._in_force is not None:
            await self._open(None)
            self._in_force = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the port."""
        if self._public.family not in (socket.AF_INET, socket.AF_INET6):
            return True
        return ipaddress.ip_address(self._public.getsockname()[0]).is_loopback

    async def _open(self, context: ssl.SSLContext | None) -> None:
        """Listen anew on the same socket; what waits in its backlog is taken by the new one."""
        before = self._server
        handshake = _HANDSHAKE if context is not None else None
        self._server = await asyncio.get_running_loop().create_server(
            self._factory, sock=self._public.dup(), backlog=4096, ssl=context, ssl_handshake_timeout=handshake
        )
        if before is not None:
            before.close()

    def close(self) -> None:
        """Take no connection any more."""
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            self._public.close()


def _load(pair: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(pair.cert_file, pair.key_file or None)
    return context
