"""What do a gateway and its translator say to each other? Two lengths, a small part that is JSON, and a body."""

import struct
from typing import Final

import msgspec

HEAD: Final = struct.Struct("<IQ")  # bytes of the small part, bytes of the body


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is to be translated; its body follows."""

    client: str
    upstream: str
    engine: str
    cap: int
    model: str
    stream: bool


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it; the new body follows. ``invalid``: it cannot be said in the engine's dialect, and why."""

    splices: tuple[str, ...] = ()
    invalid: str = ""


def begun(part: Job | Said, body_bytes: int) -> bytes:
    """Write everything that stands in front of a body."""
    data = msgspec.json.encode(part)
    return HEAD.pack(len(data), body_bytes) + data
