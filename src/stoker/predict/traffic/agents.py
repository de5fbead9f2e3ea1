"""Recorded agents, as AgentX and the Weka corpus write them: one object a conversation, subagents inside it.

Requests carry the ids of their cache blocks, which are of this conversation alone; what begins with ids that were there
before was sent before. A subagent is a session of its own.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject


class _Request(msgspec.Struct):
    t: Annotated[float, msgspec.Meta(ge=0)]
    tokens_in: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="in")
    tokens_out: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="out")
    hash_ids: list[int] = []


class _Entry(msgspec.Struct):
    """A request, or a subagent with its own."""

    type: str
    t: Annotated[float, msgspec.Meta(ge=0)]
    tokens_in: int | None = msgspec.field(name="in", default=None)
    tokens_out: int | None = msgspec.field(name="out", default=None)
    hash_ids: list[int] = []
    agent_id: str = ""
    requests: list[_Request] = []


class _Trace(msgspec.Struct):
    id: str
    block_size: Annotated[int, msgspec.Meta(gt=0)]
    requests: list[_Entry]


def is_one(value: Json) -> bool:
    """Whether an object is such a conversation."""
    return isinstance(value, dict) and "requests" in value and "block_size" in value


def rows(value: Json, *, file: str, line: int = 0) -> list[JsonObject]:
    """Write the rows of one conversation, in the order of time. Raises Invalid naming the place."""
    try:
        trace = msgspec.convert(value, _Trace)
    except msgspec.ValidationError as error:
        raise Invalid(Fault(message=f"it is no recorded agent: {error}", file=file, line=line)) from error
    found: list[JsonObject] = []
    for number, entry in enumerate(trace.requests):
        if entry.type == "subagent":
            found += _session(entry.requests, f"{trace.id}/{entry.agent_id or number}", trace.block_size)
        elif entry.tokens_in is None or entry.tokens_out is None:
            message = "a request without its tokens"
            raise Invalid(Fault(message=message, file=file, line=line, field=f"requests[{number}].in, .out"))
    own = [
        _Request(t=entry.t, tokens_in=entry.tokens_in, tokens_out=entry.tokens_out or 0, hash_ids=entry.hash_ids)
        for entry in trace.requests
        if entry.type != "subagent" and entry.tokens_in is not None
    ]
    found += _session(own, trace.id, trace.block_size)
    return sorted(found, key=lambda row: float(str(row["at_seconds"])))


def _session(requests: Sequence[_Request], name: str, block: int) -> list[JsonObject]:
    seen: set[int] = set()
    found: list[JsonObject] = []
    for request in requests:
        shared = next((i for i, each in enumerate(request.hash_ids) if each not in seen), len(request.hash_ids))
        seen.update(request.hash_ids)
        found.append(
            {
                "at_seconds": request.t,
                "prompt_tokens": request.tokens_in,
                "output_tokens": request.tokens_out,
                "session": name,
                "shared_tokens": min(shared * block, request.tokens_in),
            }
        )
    return found
