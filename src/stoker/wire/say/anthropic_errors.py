"""How is an error written in the messages dialect?"""

from typing import Final

import msgspec

from stoker.wire.errors import text_of

_encode = msgspec.json.Encoder().encode


class Detail(msgspec.Struct, frozen=True):
    """The inside of an error."""

    type: str
    message: str


class Body(msgspec.Struct, frozen=True, tag_field="type", tag="error", omit_defaults=True):
    """An error body, and the data of an error frame."""

    error: Detail
    request_id: str = ""


class _Probe(msgspec.Struct):
    type: str = ""
    error: msgspec.Raw = msgspec.Raw(b"")


_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_KINDS: Final = frozenset({*_TYPES.values(), "api_error"})


def kind_of(status: int) -> str:
    """Name the error type that goes with a status."""
    return _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def body(
    status: int, message: str, *, code: str | None = None, param: str | None = None, request_id: str = ""
) -> bytes:
    """Write an error body. The dialect has no member for a code; a parameter is named in the sentence."""
    del code
    text = f"{param}: {message}" if param and param not in message else message
    return _encode(Body(Detail(kind_of(status), text), request_id=request_id))


def frame(message: str, *, kind: str, code: str | int, request_id: str = "") -> bytes:
    """Write an error inside a stream: anthropic clients raise on it."""
    del code
    return frame_of(_encode(Body(Detail(kind if kind in _KINDS else "api_error", message), request_id=request_id)))


def frame_of(data: bytes) -> bytes:
    """Put an error body into a frame of a stream; line ends inside it would break the frame."""
    return b"event: error\ndata: %b\n\n" % b" ".join(data.split(b"\n"))


def in_shape(status: int, data: bytes, *, request_id: str = "") -> bytes:
    """Give an engine's error body as it is when it has the shape of this dialect, else its text inside one.

    llama.cpp answers in the OpenAI shape even here, which Claude Code shows as raw JSON.
    """
    try:
        seen = msgspec.json.decode(data, type=_Probe)
    except (msgspec.DecodeError, UnicodeDecodeError):
        seen = _Probe()
    if seen.type == "error" and bytes(seen.error)[:1] == b"{":
        return data
    return body(status, text_of(data) or f"the engine answered {status}", request_id=request_id)
