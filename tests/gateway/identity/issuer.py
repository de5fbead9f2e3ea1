"""A local issuer of tokens: it signs what it is asked to sign, serves its key set, and fails on command."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from stoker.base import clock

NAME = "https://issuer.test"
AUDIENCE = "stoker"


@cache
def private(kid: str) -> PrivateKeyTypes:
    """One key a name; the name says its sort."""
    if kid.startswith("es384"):
        return ec.generate_private_key(ec.SECP384R1())
    if kid.startswith("es"):
        return ec.generate_private_key(ec.SECP256R1())
    if kid.startswith("ed"):
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=1024 if kid.startswith("short") else 2048)


def algorithm(kid: str) -> str:
    return {"es384": "ES384", "es": "ES256", "ed": "EdDSA"}.get(kid.partition("-")[0], "RS256")


def public(kid: str, **changes: object) -> dict[str, object]:
    made = jwt.get_algorithm_by_name(algorithm(kid)).to_jwk(private(kid).public_key(), as_dict=True)  # type: ignore[union-attr]
    return {"kid": kid, "use": "sig", **{k: v for k, v in made.items() if k != "key_ops"}, **changes}


def key_set(*kids: str) -> bytes:
    return msgspec.json.encode({"keys": [public(kid) for kid in kids]})


def claims(**changes: object) -> dict[str, object]:
    now = clock.now()
    said = {"iss": NAME, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 300, **changes}
    return {name: value for name, value in said.items() if value is not None}


def token(kid: str = "rs-1", *, header: dict[str, object] | None = None, **changes: object) -> str:
    return jwt.encode(claims(**changes), private(kid), algorithm(kid), headers={"kid": kid, **(header or {})})  # type: ignore[arg-type]


class Issuer:
    def __init__(self) -> None:
        self.body = key_set("rs-1")
        self.status = 200
        self.asked = 0
        self.port = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/jwks"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (self.status, len(self.body), self.body))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Issuer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
