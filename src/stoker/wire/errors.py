"""How is an error written in the OpenAI dialects?"""

import msgspec

_encode = msgspec.json.Encoder().encode


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """The inside of an error body."""

    message: str
    type: str
    param: str | None = None
    code: str | int | None = None


class Body(msgspec.Struct, frozen=True):
    """An error body, and the data of an error frame."""

    error: Detail


class _Probe(msgspec.Struct):
    """What an engine may call its error."""

    error: msgspec.Raw = msgspec.Raw(b"")
    detail: msgspec.Raw = msgspec.Raw(b"")
    message: str | None = None


_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def kind_of(status: int) -> str:
    """Name the error type that goes with a status."""
    return _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def body(status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """Write an error body."""
    return _encode(Body(Detail(message=message, type=kind_of(status), param=param, code=code)))


def frame(message: str, *, kind: str, code: str | int) -> bytes:
    """Write an error inside a stream: openai clients raise on it."""
    return b"data: %b\n\n" % _encode(Body(Detail(message=message, type=kind, code=code)))


def text_of(data: bytes) -> str:
    """Find the sentence in an engine's error body, whatever its shape; empty when there is none."""
    try:
        seen = msgspec.json.decode(data, type=_Probe)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return data[:2000].decode("utf-8", "replace")
    raw = bytes(seen.error) or bytes(seen.detail)
    if raw[:1] == b"{":
        inner = msgspec.json.decode(raw, type=_Probe)
        return inner.message or raw.decode("utf-8", "replace")
    return (raw.decode("utf-8", "replace").strip('"') if raw else seen.message) or ""


def in_shape(status: int, data: bytes) -> bytes:
    """Give an engine's error body as it is when it has the OpenAI shape, else its text inside one."""
    try:
        seen = msgspec.json.decode(data, type=_Probe)
    except (msgspec.DecodeError, UnicodeDecodeError):
        seen = _Probe()
    if bytes(seen.error)[:1] == b"{":
        return data
    return body(status, text_of(data) or f"the engine answered {status}")


def frame_of(data: bytes) -> bytes:
    """Put an error body into a frame of a stream; line ends inside it would break the frame."""
    return b"data: %b\n\n" % b" ".join(data.split())
