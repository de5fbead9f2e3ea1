"""Is anybody there, may we ask, and how long is a prompt? Found out before the clock runs: a mistake costs nothing.

Nobody needs a tokenizer: three short questions tell how many tokens the server makes of a word, of a message, and of
its own template.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

import msgspec

from stoker.base.errors import Driver, Fault, Invalid, nearest
from stoker.bench.load.render import Render, render
from stoker.bench.load.talk import Costs
from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.drivers.request import Call, Reply, fetch
from stoker.facts.record import Tokens
from stoker.wire import pairs
from stoker.wire.errors import text_of
from stoker.wire.pairs import Pair
from stoker.wire.request import Asked

_FEW: Final = 8  # words of a short question
_MANY: Final = 264
_ANSWER: Final = 16  # tokens; some servers take no fewer
_TIMEOUT: Final = 120.0
_SHOWN: Final = 200
_VERSIONS: Final = ("/version", "/props")


class _Model(msgspec.Struct):
    id: str = ""


class _Version(msgspec.Struct):
    version: str = ""
    build_info: str = ""


class _Models(msgspec.Struct):
    data: list[_Model] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A target that answers, and how it counts."""

    target: Target
    book: Book
    costs: Costs
    server: str
    notes: tuple[str, ...] = ()


def reach(target: Target, *, tools: bool) -> Reached:
    """Look for the model, ask three short questions. Raises Invalid in one line: where, what, and the nearest right."""
    try:
        found, server = _models(target)
        target = replace(target, model=_model(target, found))
        return _count(target, server, tools=tools)
    except Driver as error:
        raise Invalid(Fault(message=str(error), field="URL", hint="is the address right, and does it run?")) from error


def _models(target: Target) -> tuple[list[str], str]:
    """List what it serves; a server without such a list names nothing."""
    reply = _get(target, "/v1/models")
    server = reply.headers.get("server", "")
    if reply.status in (401, 403):
        raise _refused(reply)
    server = " ".join(filter(None, (server, _version(target))))
    if reply.status != 200:
        return [], server
    try:
        return [model.id for model in msgspec.json.decode(reply.body, type=_Models).data if model.id], server
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [], server


def _get(target: Target, path: str) -> Reply:
    headers = {name: value for name, value in target.headers.items() if name != "content-type"}
    return fetch(Call(url=f"{target.url}{path}", headers=headers, timeout=30.0, trusted_cert_file=target.cert_file))


def _version(target: Target) -> str:
    """Ask for the engine's version as vLLM and llama.cpp tell it; others tell nothing, and that is no mistake."""
    for path in _VERSIONS:
        reply = _get(target, path)
        if reply.status != 200:
            continue
        try:
            found = msgspec.json.decode(reply.body, type=_Version)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if found.version or found.build_info:
            return found.version or found.build_info
    return ""


def _model(target: Target, found: Sequence[str]) -> str:
    if not target.model:
        if not found:
            raise Invalid(Fault(message="it lists no models", field="--model", hint="name the one to ask"))
        return found[0]
    if found and target.model not in found:
        hint = nearest(target.model, found) or f"it serves {', '.join(found[:8])}"
        raise Invalid(Fault(message=f"it serves no '{target.model}'", field="--model", hint=hint))
    return target.model


def _count(target: Target, server: str, *, tools: bool) -> Reached:
    book, writer, salt = Book(), render(target), token_hex(4)

    def ask(name: str, lengths: Sequence[int]) -> Tokens:
        texts = [book.text(f"{salt}/{name}/{i}", words) for i, words in enumerate(lengths)]
        return _ask(target, _conversation(writer, texts, tools=tools), tools=tools)

    short, long, several = ask("short", [_FEW]), ask("long", [_MANY]), ask("several", [_FEW] * 5)
    if not short.prompt or long.prompt <= short.prompt:
        note = "the server reports no prompt tokens: prompts are as many words as the script has tokens"
        return Reached(target=target, book=book, costs=Costs(), server=server, notes=(note,))
    word = (long.prompt - short.prompt) / (_MANY - _FEW)
    message = max(0.0, (several.prompt - short.prompt - 4 * _FEW * word) / 4)
    request = max(0.0, short.prompt - message - _FEW * word)
    notes = ("the server reports no output tokens: they are counted by events",) if short.estimated else ()
    return Reached(
        target=target,
        book=Book(words_per_token=1 / word),
        costs=Costs(request=request, message=message),
        server=server,
        notes=notes,
    )


def _conversation(writer: Render, texts: Sequence[bytes], *, tools: bool) -> bytes:
    pieces = [writer.assistant(text) if i % 2 else writer.user(text) for i, text in enumerate(texts)]
    return writer.body(b"", pieces, most=_ANSWER, tools=tools)


def _ask(target: Target, body: bytes, *, tools: bool) -> Tokens:
    """Ask once. Raises Invalid for a refusal, Driver for no answer."""
    call = Call(
        url=f"{target.origin}{target.path}",
        method="POST",
        headers=target.headers,
        body=body,
        timeout=_TIMEOUT,
        trusted_cert_file=target.cert_file,
    )
    reply = fetch(call)
    if reply.status != 200:
        raise _refused(reply)
    asked = Asked(model=target.model, tools=msgspec.Raw(b"[{}]") if tools else msgspec.Raw(b""))
    one = pairs.Call(id="0", stream=True)
    pair = Pair(client=target.dialect, upstream=target.dialect)
    follow = pairs.follower(pair, asked, call=one, speaks=pairs.voice(target.dialect, asked, call=one))
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        follow.feed(reply.body, 1.0)
    elif not follow.whole(reply.body, 1.0):
        raise Invalid(Fault(message="it does not answer in JSON", field="URL", hint="is it a server of this dialect?"))
    return follow.tokens()


def _refused(reply: Reply) -> Invalid:
    said = " ".join(text_of(reply.body)[:_SHOWN].split())
    message = f"it answered {reply.status}: {said}" if said else f"it answered {reply.status}"
    if reply.status in (401, 403):
        return Invalid(Fault(message=message, field="--key", hint="a wrong key, or none: --key, STOKER_API_KEY"))
    if reply.status == 404:
        hint = "is the model's name right, and does the server speak this dialect?"
        return Invalid(Fault(message=message, field="--model, --dialect", hint=hint))
    hint = "it must answer one short question before it is asked many"
    return Invalid(Fault(message=message, field="URL", hint=hint))
