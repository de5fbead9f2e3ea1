"""Who asks? A key is known by its hash, a token by its issuer's signature; what names not exactly one is nobody.

A token that was verified is remembered by its hash until it expires, so that a hot one costs what a key costs. What is
remembered is forgotten when callers or signing keys change.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from stoker.decide.admit import output_cap
from stoker.decide.quota.scopes import UNLIMITED
from stoker.facts.door import Auth
from stoker.facts.routes import Caller, Callers, Key, Subject
from stoker.gateway.identity.tokens import Bearer, Judge

_MOST_TOKENS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A caller and the key that it showed."""

    caller: Caller
    key: Key
    limited: bool  # whether the shared table must be asked at all
    line: bytes  # the header by which an engine learns who asks
    token: bool = False

    @property
    def lasting(self) -> bool:
        """Whether it holds as long as its caller is in force."""
        return not self.token and self.key.expires_at is None

    def output_cap(self, service: str) -> int:
        """Find the most output tokens that one call may ask of a service; 0: the caller has no limit."""
        most = self.caller.limits.max_output_tokens
        own = self.caller.models.get(service)
        return most if own is None else output_cap(service=most, caller=own.max_output_tokens)

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
    status: int = 401
    retry_after: int = 0  # seconds; 0: it will not heal by itself


_MISSING: Final = Denial(
    code="missing_api_key", message="No API key was given. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."
)
_CONFLICT: Final = Denial(code="conflicting_api_keys", message="Two different API keys were given; send one.")
_UNKNOWN: Final = Denial(code="invalid_api_key", message="The API key is not valid.")
_STRANGER: Final = Denial(
    code="unknown_caller", message="The token is valid, but not exactly one Caller has its subject.", status=403
)


class Identities:
    """The callers in force."""

    __slots__ = ("_by_hash", "_by_subject", "_judge", "_judged_by", "_remembered", "_renewal")

    def __init__(self, callers: Callers, auth: Auth | None = None, judge: Judge | None = None) -> None:
        auth = auth or Auth()
        self._by_hash = {
            bytes.fromhex(key.sha256): _grant(caller, key)
            for caller in callers.callers
            for key in caller.keys
            if auth.api_keys
        }
        self._renewal = auth.renewal
        self._judge = judge
        self._judged_by: object = None  # the signing keys by which the remembered tokens were judged
        self._remembered: dict[bytes, Grant] = {}
        issuer = auth.jwt.issuer if auth.jwt is not None else ""
        self._by_subject: dict[tuple[str, str], Grant] = {}
        named = Counter((s.issuer or issuer, s.subject) for caller in callers.callers for s in caller.subjects)
        for caller in callers.callers:
            for subject in caller.subjects:
                name = (subject.issuer or issuer, subject.subject)
                if named[name] == 1:  # one subject for two callers would bill whoever stands first
                    self._by_subject[name] = _token_grant(caller, subject)

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
        digest = hashlib.sha256(shown).digest()
        grant = self._by_hash.get(digest)
        if grant is None:
            return _UNKNOWN if self._judge is None else self._stranger(self._judge, shown, digest, now=now)
        key = grant.key
        if key.revoked or key.expires_at is not None or now < key.not_before:
            return self._in_force(grant, now)
        return grant

    def cut(self, grant: Grant | None, *, by_default: bool) -> bool:
        """Tell whether a stream that was opened with ``grant`` must end: its credential is revoked or gone."""
        if grant is None:  # the controller's probe
            return False
        policy = grant.caller.cut_revoked
        if grant.token:
            known = [g for g in self._by_subject.values() if g.caller.name == grant.caller.name]
        else:
            known = [g for g in (self._by_hash.get(bytes.fromhex(grant.key.sha256)),) if g is not None]
        mine = next((g for g in known if g.key.id == grant.key.id), None)
        if mine is not None:
            policy = mine.caller.cut_revoked
        return (by_default if policy is None else policy) and (mine is None or mine.key.revoked)

    def _stranger(self, judge: Judge, shown: bytes, digest: bytes, *, now: float) -> Grant | Denial:
        """Judge a token; anything that is none is an unknown key."""
        if shown.count(b".") != 2:
            return _UNKNOWN
        if self._judged_by is not judge.keys:  # a withdrawn signing key takes its tokens along
            self._remembered.clear()
            self._judged_by = judge.keys
        grant = self._remembered.get(digest)
        if grant is None:
            found = judge.judge(shown, now=now)
            if not isinstance(found, Bearer):
                return self._denial(found.code, found.message, retry_after=found.retry_after, renew=found.renew)
            known = self._by_subject.get((found.issuer, found.subject))
            if known is None:
                return _STRANGER
            grant = _until(known, found.expires_at)
            self._remember(digest, grant, now)
        return self._in_force(grant, now)

    def _remember(self, digest: bytes, grant: Grant, now: float) -> None:
        kept = self._remembered
        if len(kept) >= _MOST_TOKENS:
            for old in [d for d, g in kept.items() if g.key.expires_at is not None and g.key.expires_at <= now]:
                del kept[old]
        if len(kept) >= _MOST_TOKENS:
            del kept[next(iter(kept))]
        kept[digest] = grant

    def _in_force(self, grant: Grant, now: float) -> Grant | Denial:
        key, what = grant.key, "token" if grant.token else "API key"
        if key.revoked:
            why = "was revoked"
        elif key.expires_at is not None and now >= key.expires_at:
            why = "has expired"
        elif now < key.not_before:
            why = "is not valid yet"
        else:
            return grant
        return self._denial("invalid_api_key", f"The {what} {why}.", grant=grant, renew=now >= key.not_before)

    def _denial(
        self, code: str, message: str, *, grant: Grant | None = None, retry_after: int = 0, renew: bool = False
    ) -> Denial:
        """Say how to renew: whoever reads it is mostly not the one who runs the gateway."""
        if renew:
            token = grant is None or grant.token
            ours = "Get a new one from its issuer." if token else _how(grant)
            message = f"{message} {self._renewal or ours}"
        return Denial(
            code=code,
            message=message,
            caller=grant.caller.name if grant is not None else "",
            key_id=grant.key.id if grant is not None else "",
            status=503 if retry_after else 401,
            retry_after=retry_after,
        )


def _how(grant: Grant | None) -> str:
    name = grant.caller.name if grant is not None else "CALLER"
    return f"A new one is made by `stoker key create {name}`."


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


def _grant(caller: Caller, key: Key) -> Grant:
    line = b"x-stoker-caller: %b\r\n" % caller.name.encode()
    return Grant(caller=caller, key=key, limited=caller.limits != UNLIMITED or bool(caller.models), line=line)


def _token_grant(caller: Caller, subject: Subject) -> Grant:
    key = Key(
        id=subject.id,
        sha256="",
        not_before=subject.not_before,
        expires_at=subject.expires_at,
        revoked=subject.revoked,
    )
    return replace(_grant(caller, key), token=True)


def _until(grant: Grant, expires_at: float) -> Grant:
    """Bound what a subject may do by the life of the token that it showed."""
    key = grant.key
    until = expires_at if key.expires_at is None else min(expires_at, key.expires_at)
    return replace(
        grant,
        key=Key(id=key.id, sha256="", not_before=key.not_before, expires_at=until, revoked=key.revoked),
    )
