"""Who asks? A key is known by its hash alone; whatever does not name exactly one valid key is nobody."""

import hashlib
from dataclasses import dataclass

from stoker.facts.routes import Caller, Callers, Key, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A caller and the key that it showed."""

    caller: Caller
    key: Key
    limited: bool  # whether the shared table must be asked at all

    def may_use(self, service: str) -> bool:
        """Whether the caller may use a service."""
        return "*" in self.caller.services or service in self.caller.services


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why nobody was recognised; never says how close a key was."""

    code: str
    message: str
    caller: str = ""  # known for an expired or revoked key, for the ledger
    key_id: str = ""


_UNLIMITED = Limits()
_MISSING = Denial(
    code="missing_api_key", message="No API key was given. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
)
_CONFLICT = Denial(code="conflicting_api_keys", message="Two different API keys were given; send one.")
_UNKNOWN = Denial(code="invalid_api_key", message="The API key is not valid.")


class Identities:
    """The callers in force."""

    __slots__ = ("_by_hash",)

    def __init__(self, callers: Callers) -> None:
        self._by_hash = {
            bytes.fromhex(key.sha256): Grant(caller=caller, key=key, limited=caller.limits != _UNLIMITED)
            for caller in callers.callers
            for key in caller.keys
        }

    def identify(self, headers: dict[bytes, bytes], *, now: float) -> Grant | Denial:
        """Find out who asks."""
        given = headers.get(b"authorization", b"")
        shown: bytes | Denial
        if given[:7] == b"Bearer " and b"x-api-key" not in headers:  # as nearly every client writes it
            shown = given[7:].strip()
        else:
            shown = _shown(headers)
            if isinstance(shown, Denial):
                return shown
        grant = self._by_hash.get(hashlib.sha256(shown).digest()) if shown else None
        if grant is None:
            return _UNKNOWN
        key = grant.key
        if key.revoked or key.expires_at is not None or now < key.not_before:
            return _in_force(grant, now)
        return grant


def _shown(headers: dict[bytes, bytes]) -> bytes | Denial:
    shown = headers.get(b"authorization")
    other = headers.get(b"x-api-key")
    if shown is not None:
        scheme, _, shown = shown.partition(b" ")
        shown = shown.strip()
        if scheme.lower() != b"bearer" or not shown:
            return _UNKNOWN
    if other is not None:
        if shown is not None and other != shown:
            return _CONFLICT
        shown = other
    return shown or _MISSING


def _in_force(grant: Grant, now: float) -> Grant | Denial:
    key = grant.key
    if key.revoked:
        why = "was revoked"
    elif key.expires_at is not None and now >= key.expires_at:
        why = "has expired"
    elif now < key.not_before:
        why = "is not valid yet"
    else:
        return grant
    return Denial(code="invalid_api_key", message=f"The API key {why}.", caller=grant.caller.name, key_id=key.id)
