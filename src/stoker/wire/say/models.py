"""Which models are there, in the shape that each family of clients reads; and how many tokens is a prompt?"""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

_encode = msgspec.json.encode


def openai_model(name: str, *, created: int) -> bytes:
    """Write one model as openai clients read it."""
    return _encode({"id": name, "object": "model", "created": created, "owned_by": "stoker"})


def openai_models(names: Sequence[str], *, created: int) -> bytes:
    """Write the list as openai clients read it."""
    return b'{"object":"list","data":[%b]}' % b",".join(openai_model(name, created=created) for name in names)


def anthropic_model(name: str, *, created: int) -> bytes:
    """Write one model as anthropic clients read it."""
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _encode({"type": "model", "id": name, "display_name": name, "created_at": at, "lifecycle": "active"})


def anthropic_models(names: Sequence[str], *, created: int) -> bytes:
    """Write the list as anthropic clients read it; all of it is one page."""
    data = b",".join(anthropic_model(name, created=created) for name in names)
    first, last = (_encode(names[0]), _encode(names[-1])) if names else (b"null", b"null")
    return b'{"data":[%b],"has_more":false,"first_id":%b,"last_id":%b}' % (data, first, last)


def token_count(tokens: int) -> bytes:
    """Write the answer to a question for the size of a prompt."""
    return b'{"input_tokens":%d}' % tokens
