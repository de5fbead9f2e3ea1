"""What of the responses dialect do we read? Typed, so that one pass over the bytes is enough."""

from typing import Final

import msgspec

from stoker.wire.usage import Details, Usage

ABSENT: Final = msgspec.Raw(b"")


class Counts(msgspec.Struct):
    """Usage."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None


class Part(msgspec.Struct):
    """A part of an item's content."""

    type: str = ""
    text: msgspec.Raw = ABSENT
    refusal: msgspec.Raw = ABSENT


class Item(msgspec.Struct):
    """An item of the output."""

    type: str = ""
    id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT
    content: list[Part] | None = None
    summary: list[Part] | None = None


class Incomplete(msgspec.Struct):
    """Why an answer is not whole."""

    reason: str | None = None


class Reply(msgspec.Struct):
    """The response object."""

    id: str = ""
    object: str = ""
    model: str = ""
    created_at: float = 0
    status: str = ""
    error: msgspec.Raw = ABSENT
    incomplete_details: Incomplete | None = None
    usage: Counts | None = None
    output: list[Item] | None = None


class Event(msgspec.Struct):
    """One event."""

    type: str = ""
    sequence_number: int | None = None
    output_index: int = 0
    delta: msgspec.Raw = ABSENT
    logprobs: msgspec.Raw = ABSENT
    item: Item | None = None
    response: Reply | None = None
    error: msgspec.Raw = ABSENT
    code: str | None = None
    message: str | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_reply = msgspec.json.Decoder(Reply).decode


def usage_of(counts: Counts) -> Usage:
    """Give usage in the words that everything else uses."""
    return Usage(
        prompt_tokens=counts.input_tokens,
        completion_tokens=counts.output_tokens,
        prompt_tokens_details=counts.input_tokens_details,
        completion_tokens_details=counts.output_tokens_details,
    )
