"""A request as the scripted engine understands it, whatever its dialect: the prompt's length, tools and limits."""

import re
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.rehearse.turns import answered, choice, content, schema, tools, turns

Dialect = Literal["chat", "completions", "messages", "responses", "embeddings", "rerank", "count_tokens", "tokenize"]

PATHS: Final[dict[str, Dialect]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "count_tokens",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
    "/rerank": "rerank",
    "/tokenize": "tokenize",
}
_STREAMS: Final = ("chat", "completions", "messages", "responses")
_LIMITS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_WORD: Final = re.compile(r"\S+\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``number`` counts those of this engine, from 1."""

    number: int
    dialect: Dialect
    stream: bool
    prompt_tokens: int
    turn: int = 0  # counts the requests since the script changed, from 1; 0: the script never did
    max_tokens: int | None = None
    usage: bool = True  # report usage; in a stream of chat or completions only where it was asked for
    tools: tuple[JsonObject, ...] = ()  # those that may be called now
    must_call: str = ""  # the tool that the client insists on
    answered: bool = False  # a tool has given its result since the model last spoke
    schema: JsonObject | None = None  # the structure that the answer must have
    words: tuple[str, ...] = field(default=(), compare=False, repr=False)  # the prompt, token by token
    exact: bool = False  # the answer is to be as long as its limit
    stops: tuple[str, ...] = ()
    logprobs: bool = False
    texts: tuple[str, ...] = ()  # what to embed, rank or count, one by one
    query: str = ""
    content: bool = False  # a tokenize request as llama.cpp takes it

    @property
    def inputs(self) -> int:
        """How many vectors are asked for."""
        return len(self.texts) or 1


def tokens_of(text: str) -> list[str]:
    """A token of the scripted engine is a word with the space behind it."""
    return _WORD.findall(text)


def read(body: bytes, *, dialect: Dialect, number: int, turn: int = 0) -> Request | None:
    """Take a body apart; None when it is no JSON object."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    conversation = turns(raw)
    words = tuple(token for turn in conversation for token in tokens_of(turn.text))
    given = answered(conversation)
    stream = raw.get("stream") is True and dialect in _STREAMS
    limit = next((raw[name] for name in _LIMITS if isinstance(raw.get(name), int)), None)
    callable_now, must = _callable(raw, given=given)
    return Request(
        number=number,
        dialect=dialect,
        stream=stream,
        turn=turn,
        prompt_tokens=len(words),
        words=words,
        exact=raw.get("ignore_eos") is True,
        max_tokens=limit if limit and limit > 0 else None,
        usage=_reports(raw, dialect, stream=stream),
        tools=callable_now,
        must_call=must,
        answered=given,
        schema=schema(raw),
        stops=_stops(raw),
        logprobs=raw.get("logprobs") is True,
        texts=_texts(raw),
        query=content(raw.get("query")),
        content="content" in raw,
    )


def _callable(raw: JsonObject, *, given: bool) -> tuple[tuple[JsonObject, ...], str]:
    """Give the tools that may be called now, none when one has just answered, and the one that must be."""
    chosen, known = choice(raw), tuple(tools(raw))
    named = tuple(tool for tool in known if tool["name"] == chosen)
    return ((), "") if given or chosen == "none" else (named or known, chosen if named else "")


def _reports(raw: JsonObject, dialect: Dialect, *, stream: bool) -> bool:
    options = raw.get("stream_options")
    asked = isinstance(options, dict) and options.get("include_usage") is True
    return asked or not stream or dialect in ("messages", "responses")


def _stops(raw: JsonObject) -> tuple[str, ...]:
    given = raw.get("stop_sequences") or raw.get("stop")
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return tuple(stop for stop in listed if isinstance(stop, str) and stop)


def _texts(raw: JsonObject) -> tuple[str, ...]:
    for name in ("documents", "input", "content", "prompt"):
        value: Json = raw.get(name)
        if value is not None:
            return tuple(content(part) for part in value) if isinstance(value, list) else (content(value),)
    return ()
