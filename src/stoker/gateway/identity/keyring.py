"""Which keys does an issuer sign with? Fetched in time, kept on the disk, and never lost because the issuer is down.

1. The last good set stays in force, over failures and over restarts of the worker, until a newer good one comes.
2. A token with an unknown key brings the next look forward, but not nearer than ``_SHORTEST`` after the one before: a
   stranger with invented key names must not make us a burden to the issuer.
3. Only public parameters of RSA, EC and Ed25519 keys are taken; a shared secret in a key set would let whoever can read
   the set write tokens.
"""

import asyncio
import base64
import hashlib
import logging
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Driver
from stoker.drivers import files
from stoker.drivers.request import Call, fetch
from stoker.facts.door import Jwt

_SHORTEST: Final = 10.0  # seconds between two looks at an issuer
_MOST_BYTES: Final = 1 << 20
_FEWEST_RSA_BYTES: Final = 256  # 2048 bits
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}
_SORTS: Final = {"R": "RSA", "P": "RSA", "E": "EC"}
_log = logging.getLogger("gateway.identity")


class SigningKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The public half of one key, as a key set writes it. Whatever else stands there is not read."""

    kty: str
    kid: str = ""
    use: str = ""
    alg: str = ""
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""

    def fits(self, algorithm: str, kid: str) -> bool:
        """Tell whether a token of this algorithm and key name may have been signed by it."""
        sort = "OKP" if algorithm == "EdDSA" else _SORTS[algorithm[0]]
        return (
            self.kty == sort
            and self.crv == _CURVES.get(algorithm, "")
            and self.alg in ("", algorithm)
            and (not kid or self.kid == kid)
        )

    def usable(self) -> bool:
        """Tell whether it is a public key for signatures, of a length that still protects."""
        if self.use not in ("", "sig"):
            return False
        if self.kty == "RSA":
            return bool(self.e) and len(base64.urlsafe_b64decode(self.n + "==")) >= _FEWEST_RSA_BYTES
        return bool(self.x) and (bool(self.y) if self.kty == "EC" else self.kty == "OKP")

    def signed(self, token: bytes, algorithm: str) -> bool:
        """Tell whether it signed a token."""
        from jwt import PyJWS, PyJWTError, get_algorithm_by_name  # noqa: PLC0415 -- only a gateway with tokens needs it

        try:
            known = get_algorithm_by_name(algorithm).from_jwk(msgspec.to_builtins(self))
            PyJWS(algorithms=[algorithm]).decode_complete(token, key=known, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError):  # a bad signature, or parameters that are no key
            return False
        return True


class _Set(msgspec.Struct, frozen=True):
    keys: tuple[SigningKey, ...]


def read(data: bytes) -> tuple[SigningKey, ...]:
    """Read a key set. Raises ValueError when there is no key in it that could sign a token."""
    raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("keys", msgspec.Raw(b"[]"))
    found = []
    for one in msgspec.json.decode(raw, type=list[msgspec.Raw]):
        try:
            key = msgspec.json.decode(one, type=SigningKey)
            if key.usable():
                found.append(key)
        except ValueError:  # one odd key must not cost the others
            continue
    if not found:
        raise ValueError("it has no public RSA, EC or Ed25519 key for signatures")
    return tuple(found)


class Keyring:
    """The keys of one issuer as this worker knows them."""

    def __init__(self, rules: Jwt, folder: Path) -> None:
        self.keys: tuple[SigningKey, ...] = ()
        self._rules = rules
        self._source = folder / rules.jwks_file if rules.jwks_file else None
        self._kept = folder / "run" / f"jwks-{hashlib.sha256(rules.jwks_uri.encode()).hexdigest()[:16]}.json"
        self._fetching: asyncio.Future[bytes] | None = None
        self._due = 0.0
        self._looked = float("-inf")
        self._why = ""
        self._seen: tuple[int, int, int] | None = None
        if self._source is None:
            self._recall()

    @property
    def problem(self) -> str:
        """Why the newest keys are not in force."""
        return f"signing keys of {self._rules.issuer}: {self._why}" if self._why else ""

    def ask(self, now: float) -> bool:
        """Note that a key is missing; tells whether the issuer is being, or will be, asked because of it."""
        if self._source is not None:
            return False
        if self._fetching is None and now - self._looked >= _SHORTEST:
            self._due = 0.0
        return self._fetching is not None or self._due <= now

    def poll(self, now: float) -> None:
        """Take over what was fetched, and look again when it is time. Called from the event loop."""
        if self._source is not None:
            self._read_file(self._source)
            return
        if self._fetching is not None and self._fetching.done():
            future, self._fetching = self._fetching, None
            self._take(future, now)
        elif self._fetching is None and now >= self._due:
            self._looked = now
            self._fetching = asyncio.get_running_loop().run_in_executor(None, _fetch, self._rules.jwks_uri)

    def _take(self, fetched: "asyncio.Future[bytes]", now: float) -> None:
        self._due = now + min(self._rules.refresh, _SHORTEST)
        try:
            data = fetched.result()
            if self._adopt(data):
                files.replace(self._kept, msgspec.json.encode(_Set(self.keys)))
        except Driver as error:
            self._fail(str(error))
            return
        except ValueError as error:
            self._fail(f"{self._rules.jwks_uri}: {error}")
            return
        self._why = ""
        self._due = now + self._rules.refresh

    def _adopt(self, data: bytes) -> bool:
        """Put a set in force; the same keys stay the same object, so that known tokens stay known."""
        keys = read(data)
        if keys == self.keys:
            return False
        _log.info("signing keys", extra={"fields": {"issuer": self._rules.issuer, "keys": [key.kid for key in keys]}})
        self.keys = keys
        return True

    def _recall(self) -> None:
        try:
            data = files.read(self._kept)
            if data is not None:
                self._adopt(data)
        except (Driver, ValueError) as error:
            self._fail(str(error))

    def _read_file(self, path: Path) -> None:
        try:
            seen = files.stamp(path)
            if seen is not None and seen == self._seen:
                return
            self._adopt(path.read_bytes())
            self._seen, self._why = seen, ""
        except (Driver, OSError, ValueError) as error:
            self._fail(f"{path}: {error}")

    def _fail(self, why: str) -> None:
        if why != self._why:
            _log.warning("signing keys", extra={"fields": {"issuer": self._rules.issuer, "why": why}})
        self._why = why


def _fetch(url: str) -> bytes:
    reply = fetch(Call(url=url, headers={"accept": "application/json"}, timeout=5.0, limit_bytes=_MOST_BYTES))
    if reply.status != 200:
        raise Driver(f"GET {url}: {reply.status}")
    return reply.body
