"""One HTTP request to somebody else's server: timed, bounded, without a pool.

For probes, the API's clients and the like; tokens of users never flow here (that is the gateway's path).
Plain sockets and the standard library: it also speaks to a Unix socket, and a probe must not share a pool
whose stale connections would be mistaken for a dead engine.
"""

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver, StokerError
from stoker.base.json import Json, JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. Header names are lower case; ``seconds`` is the whole exchange."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = 0.0

    def json(self) -> Json:
        """Read the body as JSON; raises Driver when it is none."""
        try:
            return msgspec.json.decode(self.body)  # type: ignore[no-any-return]
        except msgspec.DecodeError as error:
            raise Driver(f"the answer is not JSON: {self.body[:200]!r}") from error

    def object(self) -> JsonObject:
        """Read the body as a JSON object; anything else counts as an empty one."""
        value = self.json()
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What to ask. ``unix`` is the path of a Unix socket that stands in for host and port.

    ``trusted_cert_file`` names certificates that are believed instead of the system's, whatever name they carry: for a
    server of ours whose certificate lies beside us.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout: float = 10.0
    unix: Path | None = None
    limit_bytes: int = 0  # the longest answer; 0: any
    trusted_cert_file: str = ""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket file instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def fetch(call: Call) -> Reply:
    """Ask once and read the whole answer. Raises Driver when there is none within ``timeout`` of silence."""
    began = clock.mono()
    connection = _connection(call)
    try:
        response = _send(connection, call)
        body = response.read(call.limit_bytes + 1) if call.limit_bytes else response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Driver(f"{call.method} {call.url}: {_reason(error)}") from error
    finally:
        connection.close()
    if call.limit_bytes and len(body) > call.limit_bytes:
        raise Driver(f"{call.method} {call.url}: the answer is longer than {call.limit_bytes} bytes")
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(status=response.status, headers=headers, body=body, seconds=clock.mono() - began)


def stream(call: Call, *, refused: Callable[[Reply], StokerError] | None = None) -> Iterator[bytes]:
    """Ask once and yield the answer line by line as it comes. Raises Driver when it breaks.

    What is not a 200 is raised as ``refused`` words it, by default as Driver.
    """
    connection = _connection(call)
    try:
        response = _send(connection, call)
        if response.status != 200:
            reply = Reply(status=response.status, body=response.read())
            text = reply.body[:400].decode(errors="replace")
            raise refused(reply) if refused else Driver(f"{call.method} {call.url}: {reply.status} {text}")
        while line := response.readline():
            yield line
    except (OSError, http.client.HTTPException) as error:
        raise Driver(f"{call.method} {call.url}: {_reason(error)}") from error
    finally:
        connection.close()


def post_json(url: str, value: Json, *, headers: Mapping[str, str] | None = None, timeout: float = 10.0) -> Reply:
    """Post one JSON value."""
    head = {"content-type": "application/json", **(headers or {})}
    return fetch(Call(url=url, method="POST", headers=head, body=msgspec.json.encode(value), timeout=timeout))


def _connection(call: Call) -> http.client.HTTPConnection:
    if call.unix is not None:
        return _UnixConnection(call.unix, call.timeout)
    parts = urlsplit(call.url)
    host = parts.hostname or "127.0.0.1"
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port, timeout=call.timeout)
    context = _believing(call.trusted_cert_file) if call.trusted_cert_file else None
    return http.client.HTTPSConnection(host, parts.port, timeout=call.timeout, context=context)


def _believing(cert_file: str) -> ssl.SSLContext:
    """Make a context that believes the certificates of one file. Raises Driver when it cannot be read."""
    try:
        context = ssl.create_default_context(cafile=cert_file)
    except OSError as error:
        raise Driver(f"cannot read certificates from {cert_file}: {error}") from error
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's own certificate is an end of trust, too
    return context


def _send(connection: http.client.HTTPConnection, call: Call) -> http.client.HTTPResponse:
    parts = urlsplit(call.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request(call.method, target, body=call.body or None, headers=dict(call.headers))
    return connection.getresponse()


def _reason(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
