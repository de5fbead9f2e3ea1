"""Is a stream well formed, whatever its dialect? Events, comments, and what stands behind the last of them."""

from dataclasses import dataclass
from typing import Final

import msgspec

from stoker.base.json import Json, JsonObject
from stoker.checks.conformance.probe import Got
from stoker.wire.sse import Splitter, data_of

_DONE: Final = b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event with data."""

    name: str
    value: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A whole stream, taken apart. ``problems`` break every client, ``comments`` none."""

    events: tuple[Event, ...]
    problems: tuple[str, ...] = ()
    comments: int = 0
    done: bool = False  # [DONE] was the last thing in it


def stream_of(got: Got) -> Stream:
    """Take the body of an answer apart."""
    trouble = _trouble(got)
    if trouble:
        return Stream(events=(), problems=(trouble,))
    splitter, events, problems = Splitter(), list[Event](), list[str]()
    payloads = [(raw, data_of(raw)) for raw in splitter.feed(got.body)]
    texts = [data for _, data in payloads if data is not None]
    if _DONE in texts[:-1]:
        problems.append("an event stands behind [DONE]")
    for raw, data in payloads:
        value = _object(data) if data is not None else None
        if value is not None:
            events.append(Event(name=_name(raw), value=value))
        elif data not in (None, _DONE):
            problems.append(f"an event is no JSON object: {data[:80] if data else data!r}")
    if splitter.tail.strip():
        problems.append("the last event lacks its empty line")
    comments = sum(data is None and raw.lstrip().startswith(b":") for raw, data in payloads)
    return Stream(events=tuple(events), problems=tuple(problems), comments=comments, done=texts[-1:] == [_DONE])


def _trouble(got: Got) -> str:
    """Say why there is no stream."""
    if got.trouble:
        return got.trouble
    if got.status != 200:
        return f"no stream: {got.shown}"
    kind = got.headers.get("content-type", "missing")
    return "" if kind.startswith("text/event-stream") else f"content-type {kind}, not text/event-stream"


def _object(data: bytes) -> JsonObject | None:
    try:
        value: Json = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _name(raw: bytes) -> str:
    lines = (line for line in raw.splitlines() if line.startswith(b"event:"))
    return next(lines, b"event:")[6:].strip().decode(errors="replace")


def counted(stream: Stream) -> str:
    """Say how much came, and how many signs of life were among it: comments, pings, repeated states."""
    repeated = sum(e.name == "response.in_progress" for e in stream.events)
    signs = stream.comments + sum(e.name == "ping" for e in stream.events) + max(repeated - 1, 0)
    return f"{len(stream.events)} events" + (f", {signs} signs of life" if signs else "")


def named(stream: Stream) -> list[str]:
    """Complain about events whose line ``event:`` and member ``type`` differ: clients look at either."""
    wrong = [e for e in stream.events if e.name != e.value.get("type")]
    return [f"event '{wrong[0].name}' has type '{wrong[0].value.get('type')}'"] if wrong else []
