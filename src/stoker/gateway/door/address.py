"""From which address does a request come? From where it was connected, unless a trusted proxy says for whom it asks.

Read from the right: each proxy adds at the end the address that it saw, so everything to the left of the first address
that is no trusted proxy was written by somebody whom we do not know.
"""

import ipaddress
from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client(peer: str, headers: dict[bytes, bytes], trusted: Sequence[Network]) -> str:
    """Find the client's address."""
    if not trusted or not _within(peer, trusted):
        return peer
    found = peer
    for hop in reversed(_hops(headers)):
        address = _address(hop)
        if not address:
            return found  # a hidden name, or nonsense: the last address that is known
        found = address
        if not _within(address, trusted):
            return found
    return found


def _hops(headers: dict[bytes, bytes]) -> list[str]:
    """List the hops that the proxies wrote, the oldest first."""
    plain = headers.get(b"x-forwarded-for")
    if plain is not None:
        return [hop.strip() for hop in plain.decode("latin-1").split(",")]
    standard = headers.get(b"forwarded")
    if standard is None:
        return []
    hops = []
    for element in standard.decode("latin-1").split(","):
        pairs = [pair.strip().partition("=") for pair in element.split(";")]
        hops.append(next((value.strip('"') for name, _, value in pairs if name.strip().lower() == "for"), ""))
    return hops


def _address(hop: str) -> str:
    """Read an address, with or without a port and brackets; empty when it is none."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        return str(ipaddress.ip_address(hop))
    except ValueError:
        return ""


def _within(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped  # a socket for both families shows IPv4 in this form
    return any(parsed.version == network.version and parsed in network for network in trusted)
