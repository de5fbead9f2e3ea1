"""Ask one case of one target, in whichever dialect that speaks, and read the answer."""

from importlib import resources
from random import Random
from typing import Final

import msgspec

from stoker.base.errors import Driver, Invalid
from stoker.base.json import Json, JsonObject
from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.decide.score.case import Call as ToolCall
from stoker.decide.score.case import Case, Reply, parse
from stoker.drivers.request import Call, fetch
from stoker.wire import pairs
from stoker.wire.pairs import Pair
from stoker.wire.request import Asked

CASES: Final[tuple[Case, ...]] = parse(resources.files("stoker.bench.suite").joinpath("cases.json").read_bytes())
_TIMEOUT: Final = 120.0


class Unanswered(Exception):
    """No whole answer came: that is no wrong answer."""


class _Function(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class _ToolCall(msgspec.Struct):
    function: _Function = _Function()


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message = _Message()
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage = _Usage()


def ask(target: Target, case: Case, book: Book, *, seed: int) -> Reply:
    """Ask a case. Raises Unanswered where no whole answer came."""
    asked = Asked(model=target.model, tools=msgspec.Raw(b"[{}]") if case.tools else msgspec.Raw(b""))
    pair = Pair(client="chat", upstream=target.dialect)
    try:
        change = pairs.prepare(
            body(target.model, case, book, seed=seed), asked, pair=pair, cap=0, model="", stream=False
        )
        call = Call(
            url=f"{target.origin}{target.path}",
            method="POST",
            headers={**target.headers, "accept": "application/json"},
            body=change.body,
            timeout=_TIMEOUT,
            trusted_cert_file=target.cert_file,
        )
        reply = fetch(call)
    except (Driver, Invalid) as error:
        raise Unanswered(str(error)) from error
    if reply.status != 200:
        raise Unanswered(f"it answered {reply.status}")
    return read(reply.body, pair, asked)


def read(data: bytes, pair: Pair, asked: Asked) -> Reply:
    """Read an answer of any dialect. Raises Unanswered for one that is cut."""
    if pair.client != pair.upstream:
        one = pairs.Call(id="check", stream=False)
        follow = pairs.follower(pair, asked, call=one, speaks=pairs.voice(pair.client, asked, call=one))
        if not follow.whole(data, 1.0):
            raise Unanswered("the answer is no JSON")
        data = follow.body()
    try:
        found = msgspec.json.decode(data, type=_Completion)
        choice = found.choices[0]
        calls = [_read(call.function) for call in choice.message.tool_calls or []]
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise Unanswered(f"the answer cannot be read: {error}") from error
    return Reply(
        text=choice.message.content or "",
        calls=tuple(calls),
        finish=choice.finish_reason or "",
        output_tokens=found.usage.completion_tokens,
    )


def _read(function: _Function) -> ToolCall:
    """Read a call; arguments that are no object are kept as what they are, and are wrong."""
    try:
        value: Json = msgspec.json.decode(function.arguments or "{}")
    except msgspec.DecodeError:
        value = function.arguments
    return ToolCall(name=function.name, arguments=value if isinstance(value, dict) else {"": value})


def body(model: str, case: Case, book: Book, *, seed: int) -> bytes:
    """Write a case in the chat dialect."""
    made: JsonObject = {
        "model": model,
        "messages": [{"role": "user", "content": _prompt(case, book, seed=seed)}],
        "max_tokens": case.max_tokens,
        "temperature": 0,
    }
    if case.stop:
        made["stop"] = list(case.stop)
    if case.tools:
        made["tools"] = [{"type": "function", "function": tool} for tool in case.tools]
    if case.schema is not None:
        schema: JsonObject = {"name": "answer", "strict": True, "schema": case.schema}
        made["response_format"] = {"type": "json_schema", "json_schema": schema}
    return msgspec.json.encode(made)


def _prompt(case: Case, book: Book, *, seed: int) -> str:
    """Put what is hidden somewhere into a text; where it stands hangs on the seed."""
    if not case.filler_words:
        return case.prompt
    words = book.text(f"needle/{case.id}/{seed}", case.filler_words).decode().split()
    at = Random(f"{case.id}/{seed}").randrange(len(words))  # noqa: S311 -- a place in a text, no secret
    text = " ".join([*words[:at], case.hidden, *words[at:]])
    return f"{text}\n\n{case.prompt}"
