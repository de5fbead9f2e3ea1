"""Which code reads, changes and follows a call, given the client's dialect and the engine's?"""

from collections.abc import Mapping
from typing import Final

import msgspec

from stoker.base.errors import Invalid
from stoker.wire import request
from stoker.wire.ask import translate
from stoker.wire.ask.functions import spaces
from stoker.wire.follow import Follow, Scanner, Voice
from stoker.wire.follower import Follower
from stoker.wire.request import Asked, Change
from stoker.wire.say import voices
from stoker.wire.say.response_object import Shell
from stoker.wire.scan.chat import Chat
from stoker.wire.scan.how import How
from stoker.wire.scan.messages import Messages
from stoker.wire.scan.responses import Responses
from stoker.wire.write import chat, messages, responses
from stoker.wire.write.whole import Whole
from stoker.wire.write.writer import Writer

_PASSED: Final = frozenset({"chat", "completions", "embeddings", "rerank", "count_tokens"})
TRANSLATED: Final = frozenset({"chat", "messages", "responses"})


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
    if dialect not in TRANSLATED and dialect not in _PASSED:
        raise Invalid(f"no dialect is called {dialect!r}")
    return request.read(body)


def prepare(body: bytes, asked: Asked, *, pair: Pair, cap: int, model: str, stream: bool) -> Change:
    """Make the body for an engine: splices where both speak one dialect, else a translation."""
    if pair.client == pair.upstream:
        return request.prepare(body, asked, cap=cap, model=model, stream=stream, dialect=pair.client)
    if pair.client not in TRANSLATED or pair.upstream not in TRANSLATED:
        raise Invalid(f"{pair.client} cannot be translated to {pair.upstream}")
    way = translate.Way(client=pair.client, upstream=pair.upstream, engine=pair.engine)
    return translate.translate(body, way, cap=cap, model=model or asked.model, stream=stream)


def voice(client: str, asked: Asked, *, call: Call) -> Voice:
    """Make what speaks for ourselves to a client; one a request, for a retry goes on with the stream as it is."""
    if client == "messages":
        return voices.MESSAGES
    if client == "responses":
        return voices.Responses(Shell(id=f"resp_{call.id}", model=asked.model, created=call.created))
    return voices.OPENAI


def follower(pair: Pair, asked: Asked, *, call: Call, speaks: Voice) -> Follower:
    """Make the follower of one try; ``speaks`` is the request's `voice`."""
    how = How(
        strip_usage=call.strip_usage,
        aggregate=call.aggregate,
        writer=None if pair.client == pair.upstream else _writer(pair, asked, call=call, speaks=speaks),
        tools=asked.wants_tools,
        engine=pair.engine,
        seed=call.id,
    )
    return Follow(_scanner(pair, how, speaks), speaks if call.stream else voices.SILENT)


def _scanner(pair: Pair, how: How, speaks: Voice) -> Scanner:
    if pair.upstream == "messages":
        return Messages(how)
    if pair.upstream == "responses":
        return Responses(how, speaks if isinstance(speaks, voices.Responses) else None)
    return Chat(how)


def _writer(pair: Pair, asked: Asked, *, call: Call, speaks: Voice) -> Writer:
    """Make what writes a translated answer."""
    if pair.client not in TRANSLATED or pair.upstream not in TRANSLATED:
        raise Invalid(f"{pair.upstream} cannot be translated to {pair.client}")
    if pair.client == "chat":
        shell = chat.Shell(id=f"chatcmpl-{call.id}", model=asked.model, created=call.created)
        if call.stream:
            return chat.Chunks(shell, strip_usage=call.strip_usage)
        return Whole(lambda parts: chat.completion(parts, shell))
    if pair.client == "messages":
        if call.stream:
            return messages.Events(id=f"msg_{call.id}", model=asked.model)
        return Whole(lambda parts: messages.message(parts, id=f"msg_{call.id}", model=asked.model))
    items = responses.Items(call.id, _names(asked))
    if isinstance(speaks, voices.Responses):
        if call.stream:
            return responses.Events(speaks, items)
        return Whole(lambda parts: responses.response(parts, speaks.shell, items))
    raise Invalid("a responses client is answered in its own voice")


def _names(asked: Asked) -> Mapping[str, tuple[str, str]]:
    """Say which flat tool name stands for which name in a namespace; most requests have none."""
    return spaces(bytes(asked.tools)) if b'"namespace"' in bytes(asked.tools) else {}
