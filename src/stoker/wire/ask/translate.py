"""How does a request in one dialect become a body for an engine that speaks another?"""

from typing import Any, Final

import msgspec

from stoker.base.errors import Invalid
from stoker.wire.ask import from_messages, from_responses, to_messages, to_responses
from stoker.wire.ask.habits import Engine
from stoker.wire.ask.notes import Notes
from stoker.wire.request import Change

_CAPS: Final = {"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """From which dialect to which, and what answers there."""

    client: str
    upstream: str
    engine: str = ""


def translate(body: bytes, way: Way, *, cap: int, model: str, stream: bool) -> Change:
    """Translate a request; raises Invalid with the member that cannot be said."""
    try:
        request: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the request body is not what this API takes: {error}") from error
    except RecursionError as error:
        raise Invalid("the request body is nested too deeply") from error
    notes, engine = Notes(), Engine(way.engine)
    out = _out_of_chat(_into_chat(request, way.client, notes, engine), way.upstream, notes, engine)
    _limit(out, _CAPS[way.upstream], cap)
    out["model"] = model
    if stream:
        out["stream"] = True
        if way.upstream == "chat":
            out["stream_options"] = {**(out.get("stream_options") or {}), "include_usage": True}
    else:
        out.pop("stream_options", None)
    words = (f"{way.client}>{way.upstream}", *(f"-{name}" for name in notes.all()))
    return Change(body=msgspec.json.encode(out), splices=words)


def _into_chat(request: dict[str, Any], client: str, notes: Notes, engine: Engine) -> dict[str, Any]:
    if client == "messages":
        return from_messages.chat(request, notes, engine)
    if client == "responses":
        return from_responses.chat(request, notes, engine)
    return {name: value for name, value in request.items() if value is not None}


def _out_of_chat(request: dict[str, Any], upstream: str, notes: Notes, engine: Engine) -> dict[str, Any]:
    if upstream == "messages":
        return to_messages.messages(request, notes, engine)
    if upstream == "responses":
        return to_responses.responses(request, notes, engine)
    return request


def _limit(out: dict[str, Any], name: str, cap: int) -> None:
    asked = out.get(name)
    if isinstance(asked, bool) or (asked is not None and not isinstance(asked, int)):
        raise Invalid(f"{name}: a number is expected here")
    if cap and (asked is None or asked < 0 or asked > cap):
        out[name] = cap
