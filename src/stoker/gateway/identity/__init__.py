"""Who asks? Keys by their hash, tokens by the signature of an issuer that the gateway believes."""

from stoker.gateway.identity.callers import Denial, Grant, Identities

__all__ = ["Denial", "Grant", "Identities"]
