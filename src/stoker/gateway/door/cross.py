"""May a browser ask us for a web page of this origin? Off unless the gateway names origins.

A preflight carries no key and needs none: it learns only what is configured. An answer to any path, and any error,
carries the same lines, since a browser shows its page nothing of an answer without them, not even the status.
"""

from typing import Final

from stoker.facts.door import Cors

_LEFT: Final = (
    *(f"x-ratelimit-{kind}-{of}" for kind in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
    *(f"anthropic-ratelimit-{of}-{kind}" for of in ("requests", "tokens") for kind in ("limit", "remaining", "reset")),
)
_SHOWN: Final = (
    "x-request-id",
    "request-id",
    "retry-after",
    "x-should-retry",
    "x-stoker-normalised",
    "x-stoker-estimated",
)
_EXPOSED: Final = f"access-control-expose-headers: {', '.join((*_SHOWN, *_LEFT))}\r\n".encode()
_METHODS: Final = b"access-control-allow-methods: GET, HEAD, POST, OPTIONS\r\n"
_MOST_ASKED: Final = 2048


class Cross:
    """The rule in force."""

    __slots__ = ("_any", "_credentials", "_headers", "_max_age", "_origins")

    def __init__(self, rules: Cors) -> None:
        self._any = "*" in rules.origins
        self._origins = frozenset(origin.lower().encode() for origin in rules.origins)
        self._headers = ", ".join(rules.headers).encode()
        self._max_age = b"access-control-max-age: %d\r\n" % rules.max_age
        self._credentials = b"access-control-allow-credentials: true\r\n" if rules.credentials else b""

    def fields(self, headers: dict[bytes, bytes]) -> bytes:
        """Write what an answer carries for the origin that asks; ``vary`` in any case, for caches in between."""
        origin = headers.get(b"origin")
        allowed = self._allowed(origin)
        return (allowed + _EXPOSED if allowed else b"") + (b"" if self._any else b"vary: Origin\r\n")

    @staticmethod
    def is_preflight(method: bytes, headers: dict[bytes, bytes]) -> bool:
        """Tell a browser's question from an OPTIONS of somebody else."""
        return method == b"OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers

    def preflight(self, headers: dict[bytes, bytes]) -> bytes:
        """Write the answer to a preflight; without ``allow-origin`` the browser does not ask."""
        vary = b"vary: Origin, Access-Control-Request-Headers\r\n"
        allowed = self._allowed(headers.get(b"origin"))
        if not allowed:
            return vary
        asked = self._headers or headers.get(b"access-control-request-headers", b"")
        named = b"" if not asked or len(asked) > _MOST_ASKED else b"access-control-allow-headers: %b\r\n" % asked
        return allowed + _METHODS + named + self._max_age + vary

    def _allowed(self, origin: bytes | None) -> bytes:
        if origin is None:
            return b""
        if self._any:
            return b"access-control-allow-origin: *\r\n"
        if origin.lower() not in self._origins:
            return b""
        return b"access-control-allow-origin: %b\r\n%b" % (origin, self._credentials)
