"""What does a request ask for, and what must be changed before an engine that speaks its dialect sees it?"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stoker.base.errors import Invalid
from stoker.wire.splice import splice

_TURNS_BYTES: Final = 1 << 20  # answers are counted in these; more would hold up everybody else
_ABSENT: Final = msgspec.Raw(b"")  # not None: msgspec would then take nothing but null


_NO_OTHERS: Final = (msgspec.UNSET,) * 3


class Asked(msgspec.Struct, kw_only=True):
    """The members that we read; everything else passes through unread."""

    model: str
    stream: bool | msgspec.UnsetType | None = msgspec.UNSET
    stream_options: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    max_completion_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    n_predict: int | msgspec.UnsetType | None = msgspec.UNSET  # llama.cpp lets it win over max_tokens
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    prompt_cache_key: str | None = None
    tools: msgspec.Raw = _ABSENT
    max_output_tokens: int | msgspec.UnsetType | None = msgspec.UNSET  # responses
    instructions: msgspec.Raw = _ABSENT  # responses
    system: msgspec.Raw = _ABSENT  # messages
    metadata: msgspec.Raw = _ABSENT
    n: Any = msgspec.UNSET
    best_of: Any = msgspec.UNSET

    @property
    def answers(self) -> int:
        """How many answers are generated: so many for each prompt, if there are several."""
        if self.n is msgspec.UNSET and self.best_of is msgspec.UNSET and not self.prompt:
            return 1
        each = max([1, *(value for value in (self.n, self.best_of) if type(value) is int)])
        return each * _prompts(self.prompt)

    @property
    def wants_usage(self) -> bool:
        """Whether the client itself asked for the usage chunk."""
        return isinstance(self.stream_options, dict) and bool(self.stream_options.get("include_usage"))

    @property
    def cap(self) -> int | None:
        """The most output tokens that the client asked for; None: it did not say."""
        given = (self.max_tokens, self.max_completion_tokens, self.n_predict, self.max_output_tokens)
        if given[1:] == _NO_OTHERS and type(given[0]) is int and given[0] >= 0:  # the usual case
            return given[0]
        asked = [value for value in given if isinstance(value, int) and value >= 0]
        return min(asked) if asked else None

    @property
    def session_key(self) -> str | None:
        """What the body says about the session that it belongs to; a user's name is none."""
        return self.prompt_cache_key or (_session_in(self.metadata) if self.metadata else None)

    @property
    def turns(self) -> bytes:
        """The first megabyte of the conversation, empty where the call is none."""
        if self.messages:
            return bytes(memoryview(self.messages)[:_TURNS_BYTES])
        given = bytes(memoryview(self.input)[:_TURNS_BYTES])
        return given if given.startswith(b"[{") else b""  # items; the input of embeddings is text or numbers

    @property
    def text(self) -> bytes:
        """The bytes of the prompt, in whichever members they are, in the order in which a model reads them."""
        if self.system or self.instructions:
            return bytes(self.system) + bytes(self.instructions) + (bytes(self.messages) or bytes(self.input))
        return bytes(self.messages) or bytes(self.prompt) or bytes(self.input)

    @property
    def mixed(self) -> bool:
        """Whether there is more to read than a conversation."""
        return bool(self.tools or self.system or self.instructions or self.prompt or self.input)

    @property
    def size(self) -> int:
        """How many bytes the prompt has, with its tools."""
        members = (self.tools, self.system, self.instructions, self.messages, self.prompt, self.input)
        return sum(map(len, members))

    def head(self, limit: int) -> bytes:
        """The first bytes of the prompt, as engines see it: tools first. Nothing of a large body is copied in vain."""
        return _first(limit, self.tools, self.system, self.instructions, self.messages or self.prompt or self.input)

    def conversation(self, limit: int) -> bytes:
        """The first bytes of the prompt without its tools."""
        return _first(limit, self.system, self.instructions, self.messages or self.prompt or self.input)

    @property
    def wants_tools(self) -> bool:
        """Whether the model may call tools."""
        return len(self.tools) > 2 and bytes(self.tools) != b"null"


def _first(limit: int, *members: bytes) -> bytes:
    given = [member for member in members if member]
    if len(given) == 1:
        return bytes(memoryview(given[0])[:limit])
    parts = []
    for member in given:
        parts.append(bytes(memoryview(member)[:limit]))
        limit -= len(parts[-1])
        if limit <= 0:
            break
    return b"".join(parts)


def _prompts(prompt: msgspec.Raw) -> int:
    """Count the prompts of a completion; a list of numbers is one prompt, in tokens."""
    begin = bytes(memoryview(prompt)[:64])
    if not begin.startswith(b"[") or begin[1:].lstrip()[:1] not in (b'"', b"["):
        return 1
    return len(msgspec.json.decode(prompt, type=list[msgspec.Raw]))


class _User(msgspec.Struct):
    user_id: str | None = None


class _Session(msgspec.Struct):
    session_id: str | None = None


def _session_in(metadata: msgspec.Raw) -> str | None:
    """Find the session in what Claude Code writes for a user: JSON, formerly a name that ends in the session."""
    try:
        user = msgspec.json.decode(metadata, type=_User | None)
        given = user.user_id or "" if user is not None else ""
        if given.startswith("{"):
            return msgspec.json.decode(given, type=_Session).session_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return given.partition("_session_")[2] or None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A body ready for an engine, and the names of the members that were changed."""

    body: bytes
    splices: tuple[str, ...]


_decode = msgspec.json.Decoder(Asked).decode
_CAPS: Final = {"messages": ("max_tokens",), "responses": ("max_output_tokens",)}
_OPENAI_CAPS: Final = ("max_tokens", "max_completion_tokens", "n_predict")


def read(body: bytes) -> Asked:
    """Read a body; raises Invalid with the place and what was expected."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the request body is not what this API takes: {error}") from error
    except RecursionError as error:
        raise Invalid("the request body is nested too deeply") from error


def _capped(asked: Asked, cap: int, dialect: str) -> bool:
    """Whether the usual member alone says how much may come, and no more than it may."""
    alone = asked.max_completion_tokens is msgspec.UNSET and asked.n_predict is msgspec.UNSET
    given = asked.max_tokens
    return not cap or (alone and dialect != "responses" and isinstance(given, int) and 0 <= given <= cap)


def caps(asked: Asked, cap: int, *, dialect: str = "chat") -> Mapping[str, int]:
    """Say which output limits to write: the one that a client gave is lowered, a missing one is added.

    ``null`` and negative numbers mean "no limit" to engines, so they are missing ones.
    """
    if _capped(asked, cap, dialect):
        return {}
    names = _CAPS.get(dialect, _OPENAI_CAPS)
    wrong = {}
    found = False
    for name in names:
        value = getattr(asked, name)
        if value is msgspec.UNSET:
            continue
        if value is None or value < 0 or value > cap:
            wrong[name] = cap
        found = True
    return wrong if found else {names[0]: cap}


def prepare(body: bytes, asked: Asked, *, cap: int, model: str, stream: bool, dialect: str = "chat") -> Change:
    """Write the output cap, the engine's name of the model, and (``stream``) streaming with usage, as splices."""
    if not stream and (not model or model == asked.model) and _capped(asked, cap, dialect):
        return Change(body=body, splices=())  # the usual whole answer: nothing to change
    limits = caps(asked, cap, dialect=dialect) if cap else {}
    wanted: dict[str, bytes] = {name: b"%d" % value for name, value in limits.items()}
    if model and model != asked.model:
        wanted["model"] = msgspec.json.encode(model)
    if stream:
        if asked.stream is not True:
            wanted["stream"] = b"true"
        if dialect not in _CAPS and not asked.wants_usage:  # the others always report usage
            options = asked.stream_options or {}
            wanted["stream_options"] = msgspec.json.encode({**options, "include_usage": True})
    if not wanted:
        return Change(body=body, splices=())
    there = {name: value for name, value in wanted.items() if getattr(asked, name) is not msgspec.UNSET}
    absent = {name: value for name, value in wanted.items() if name not in there}
    large = max(asked.messages, asked.input, asked.prompt, asked.tools, key=len)
    return Change(body=splice(body, there, absent, large=large), splices=tuple(wanted))
