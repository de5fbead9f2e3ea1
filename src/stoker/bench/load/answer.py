"""What did the model say? Its visible text out of the bytes of a stream, for the next turn of a session."""

import msgspec

from stoker.wire.sse import Splitter, data_of


class _Delta(msgspec.Struct):
    """The part of an event that carries text: ``content`` in chat, ``text`` in messages."""

    content: str | None = None
    text: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    index: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    type: str = ""
    delta: _Delta | str | None = None


_decode = msgspec.json.Decoder(_Event).decode


def text_of(stream: bytes) -> bytes:
    """Give the text as the inside of a JSON string; what cannot be read is left out."""
    found = []
    for event in Splitter().feed(stream):
        data = data_of(event)
        if data is None or data == b"[DONE]":
            continue
        try:
            found.append(_said(_decode(data)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # an event of a shape that carries no text
    return msgspec.json.encode("".join(found))[1:-1]


def _said(event: _Event) -> str:
    if event.choices:
        delta = event.choices[0].delta
        return (delta.content or "") if delta is not None and not event.choices[0].index else ""
    if isinstance(event.delta, str):
        return event.delta if event.type == "response.output_text.delta" else ""
    return (event.delta.text or "") if event.delta is not None else ""
