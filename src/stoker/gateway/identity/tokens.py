"""Is a token good, and whose is it? Its signature by a known key first, then its claims, by the time that is given.

1. Only algorithms that the gateway names, only with two different keys for signing and checking, and only with a key
   of the algorithm's own sort: no token chooses how it is judged.
2. A key that is not known yet is not a bad token: the issuer may just have changed its keys. The client is told to come
   again, once for each look at the issuer.
3. Who a token is for, and until when, counts with a skew of clocks; a token without an end is refused.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

import msgspec

from stoker.facts.door import Jwt
from stoker.gateway.identity.keyring import Keyring

_MOST_BYTES: Final = 16 << 10


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    exp: float
    aud: str | list[str] = ""
    nbf: float = 0.0
    iat: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """What a good token says."""

    issuer: str
    subject: str  # the value of the claim that names the caller
    expires_at: float  # with the skew


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a token is not good."""

    message: str
    code: str = "invalid_token"
    renew: bool = False
    retry_after: int = 0


_INVALID: Final = Refusal(message="The token is not valid.")
_UNKNOWN_KEY: Final = Refusal(
    message="The key that signed this token is not known yet; the issuer is being asked for it.",
    code="signing_keys_unknown",
    retry_after=1,
)


class Judge:
    """Judges the tokens of one issuer."""

    __slots__ = ("_ring", "_rules")

    def __init__(self, rules: Jwt, ring: Keyring) -> None:
        self._rules = rules
        self._ring = ring

    @property
    def keys(self) -> object:
        """The signing keys in force; another object when they have changed."""
        return self._ring.keys

    def judge(self, token: bytes, *, now: float) -> Bearer | Refusal:
        """Tell whose a token is, or why it is refused."""
        header, payload, claims = _read(token)
        rules = self._rules
        if header is None or claims is None or header.alg not in rules.algorithms or claims.iss != rules.issuer:
            return _INVALID
        keys = [key for key in self._ring.keys if key.fits(header.alg, header.kid)]
        if not keys:
            return _UNKNOWN_KEY if self._ring.ask(now) else _INVALID
        if not any(key.signed(token, header.alg) for key in keys):
            return _INVALID
        return _in_time(claims, rules, now) or _bearer(payload, claims, rules)


def _read(token: bytes) -> tuple[_Header | None, bytes, _Claims | None]:
    from jwt.utils import base64url_decode  # noqa: PLC0415 -- only a gateway with tokens needs it

    if len(token) > _MOST_BYTES:
        return None, b"", None
    head, body, _ = token.split(b".")
    with contextlib.suppress(ValueError):  # no base64, no JSON, a claim of another type
        payload = base64url_decode(body)
        header = msgspec.json.decode(base64url_decode(head), type=_Header)
        return header, payload, msgspec.json.decode(payload, type=_Claims)
    return None, b"", None


def _in_time(claims: _Claims, rules: Jwt, now: float) -> Refusal | None:
    meant = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if not set(meant) & set(rules.audience):
        return Refusal(message="The token is meant for another audience.")
    if now >= claims.exp + rules.clock_skew:
        return Refusal(message="The token has expired.", renew=True)
    if now < max(claims.nbf, claims.iat) - rules.clock_skew:
        return Refusal(message="The token is not valid yet.")
    return None


def _bearer(payload: bytes, claims: _Claims, rules: Jwt) -> Bearer | Refusal:
    raw = msgspec.json.decode(payload, type=dict[str, msgspec.Raw]).get(rules.caller_claim)
    try:
        subject = msgspec.json.decode(raw, type=str) if raw is not None else ""
    except ValueError:
        subject = ""
    if not subject:
        return Refusal(message=f"The token has no text in its claim '{rules.caller_claim}', which names the caller.")
    return Bearer(issuer=claims.iss, subject=subject, expires_at=claims.exp + rules.clock_skew)
