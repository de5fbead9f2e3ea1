"""Which code reads, changes and follows a call, given the client's dialect and the engine's?"""

from typing import Final

import msgspec

from stoker.base.errors import Invalid
from stoker.wire import request
from stoker.wire.follow import Follow, Voice
from stoker.wire.follower import Follower
from stoker.wire.request import Asked, Change
from stoker.wire.say.voices import OPENAI
from stoker.wire.scan.chat import Chat
from stoker.wire.scan.how import How

_OPENAI: Final = frozenset({"chat", "completions", "embeddings", "rerank"})


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The dialects on both sides of a call, and the engine that answers."""

    client: str
    upstream: str
    engine: str = ""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """How one call is to be answered."""

    id: str  # unique: the ids of a translated answer are made of it
    stream: bool  # the client wants events
    strip_usage: bool = False  # the client did not ask for the usage chunk, we did
    aggregate: bool = False  # the engine sends events, the client wants one body
    created: int = 0  # epoch seconds, for answers that must name a time


def read(dialect: str, body: bytes) -> Asked:
    """Read a request of a dialect; raises Invalid with the place and what was expected."""
    if dialect in _OPENAI:
        return request.read(body)
    raise Invalid(f"no dialect is called {dialect!r}")


def prepare(body: bytes, asked: Asked, *, pair: Pair, cap: int, model: str, stream: bool) -> Change:
    """Make the body for an engine: splices where both speak one dialect, else a translation."""
    if pair.client == pair.upstream:
        return request.prepare(body, asked, cap=cap, model=model, stream=stream)
    raise Invalid(f"{pair.client} cannot be translated to {pair.upstream}")


def voice(client: str, asked: Asked, *, call: Call) -> Voice:  # noqa: ARG001 -- responses need all of it
    """Make what speaks for ourselves to a client; one a request, for a retry goes on with the stream as it is."""
    return OPENAI


def follower(pair: Pair, asked: Asked, *, call: Call, speaks: Voice) -> Follower:  # noqa: ARG001 -- translations need it
    """Make the follower of one try; ``speaks`` is the request's `voice`."""
    if pair.client == pair.upstream:
        return Follow(
            Chat(How(strip_usage=call.strip_usage, aggregate=call.aggregate, engine=pair.engine, seed=call.id)), speaks
        )
    raise Invalid(f"{pair.upstream} cannot be translated to {pair.client}")
