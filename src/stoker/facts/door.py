"""What the controller tells the gateways about their door: who proves himself how, from where, and what is noted."""

from typing import Final

import msgspec

HEALTH: Final = "Health"  # GET /healthz and /readyz
ROOT: Final = "Root"  # GET and HEAD /
METRICS: Final = "Metrics"  # GET /metrics on the public port


class Jwt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of which issuer are believed, and which of their claims names the caller. Times are in seconds."""

    issuer: str
    audience: tuple[str, ...]
    jwks_uri: str = ""
    jwks_file: str = ""
    caller_claim: str = "sub"
    clock_skew: float = 30.0
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    refresh: float = 300.0


class Auth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How callers prove who they are."""

    api_keys: bool = True
    jwt: Jwt | None = None
    renewal: str = ""  # what a refused caller is told about new credentials; empty: how Stoker makes them
    cut_revoked: bool = False  # whether a revocation ends the streams that its credential has open


class Cors(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From which pages browsers may ask. ``max_age`` is in seconds."""

    origins: tuple[str, ...]
    headers: tuple[str, ...] = ()  # empty: whichever the browser names
    max_age: float = 600.0
    credentials: bool = False


class AccessLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where one line a request goes."""

    stdout: bool = False
    max_bytes: int = 64 << 20
    keep: int = 5


class Listener(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One port: its certificate, and whom it believes about the client's address."""

    port: int
    cert_file: str = ""
    key_file: str = ""
    trusted_proxies: tuple[str, ...] = ()


class Door(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it."""

    auth: Auth = Auth()
    cors: Cors | None = None
    access_log: AccessLog | None = None
    listeners: tuple[Listener, ...] = ()
    open: tuple[str, ...] = (HEALTH, ROOT)
