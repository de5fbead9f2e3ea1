"""The controller's way through the gateway to a replica that nobody else may reach yet.

A probe request carries one header that names the endpoint and its incarnation, an expiry and an HMAC over them.
The gateway sends it to exactly that endpoint, whatever its state, and to nothing else.
"""

import hashlib
import hmac
from typing import Final

HEADER: Final = "x-stoker-probe"
CALLER: Final = "stoker:probe"  # the caller in the ledger; left out of usage reports


def sign(key: bytes, *, endpoint: str, incarnation: str, expires_at: float) -> str:
    """Write the header's value."""
    claim = f"{endpoint};{incarnation};{expires_at:.0f}"
    return f"{claim};{_mac(key, claim)}"


def verify(key: bytes, value: str, *, now: float) -> tuple[str, str] | None:
    """Read (endpoint, incarnation) from a header's value, or None when it is forged, cut or expired."""
    claim, _, mac = value.rpartition(";")
    if not key or not hmac.compare_digest(mac.encode(), _mac(key, claim).encode()):
        return None
    endpoint, incarnation, expires_at = claim.rsplit(";", 2)
    return (endpoint, incarnation) if now < float(expires_at) else None


def _mac(key: bytes, claim: str) -> str:
    return hmac.new(key, claim.encode(), hashlib.sha256).hexdigest()
