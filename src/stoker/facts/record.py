"""One ledger record: who asked what of which model, and how it ended. Never any text."""

from typing import Final

import msgspec

from stoker.facts.ending import Flag, Outcome

SCHEMA_VERSION: Final = 1


class Tokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token counts of one request. ``estimated`` is true when the engine reported none."""

    prompt: int = 0
    cached: int = 0
    reasoning: int = 0
    visible: int = 0
    tool: int = 0
    output: int = 0  # all generated tokens as the engine counts them
    estimated: bool = False


class Times(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds since the request head was complete; 0 where the step was never reached."""

    queue: float = 0.0
    first_byte: float = 0.0
    first_token: float = 0.0
    first_visible: float = 0.0
    last: float = 0.0
    total: float = 0.0


class Gaps(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Summary of the waits between tokens, in seconds."""

    count: int = 0
    mean: float = 0.0
    longest: float = 0.0


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="record"):
    """One request as the gateway saw it. ``id`` is worker boot + sequence: the key that makes ingest exactly-once."""

    id: str
    schema_version: int = SCHEMA_VERSION
    request_id: str = ""
    at: float = 0.0  # epoch seconds at which the request head was complete
    caller: str = ""
    key_id: str = ""
    service: str = ""  # namespace/name of the ModelService
    model: str = ""  # as the client wrote it
    endpoint: str = ""
    incarnation: str = ""
    dialect: str = ""
    path: str = ""
    stream: bool = False
    attempts: int = 0
    outcome: Outcome = Outcome.COMPLETE
    detail: str = ""
    flags: tuple[Flag, ...] = ()
    status: int = 0
    tokens: Tokens = Tokens()
    times: Times = Times()
    gaps: Gaps = Gaps()
    session: str = ""  # salted hash of the client's session key
    turn: int = 0
    blocks: tuple[str, ...] = ()  # salted chain of hashes of the prompt's blocks, bounded; never text
    prompt_bytes: int = 0  # with tools and system prompt, as the client wrote them
    tools_bytes: int = 0  # of these, the tools, which stand first
    system_bytes: int = 0  # and the system prompt, which stands next
    splices: tuple[str, ...] = ()  # what we changed in the bytes
    price_usd: float | None = None
