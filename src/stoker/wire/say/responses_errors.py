"""How is an error written in the responses dialect? Before the stream as everywhere in the OpenAI API, in it by event.

``response.failed`` is what Codex acts on (it takes ``error`` for a cut stream); the top-level ``error`` beside it is
what makes the openai client raise, which otherwise hands the event over like any other.
"""

from stoker.wire import errors
from stoker.wire.errors import in_shape as in_shape  # noqa: PLC0414 -- the same body before the stream
from stoker.wire.errors import text_of
from stoker.wire.say.response_object import Shell, error_of

body = errors.body
_NOBODY = Shell(id="resp_failed", model="", created=0)


def failed(message: str, *, code: str | int, shell: Shell, number: int) -> bytes:
    """Write the event that ends a failed answer."""
    error = error_of(message, code)
    return (
        b'event: response.failed\ndata: {"type":"response.failed","sequence_number":%d,"response":%b,"error":%b}\n\n'
        % (
            number,
            shell.write(b"failed", error=error),
            error,
        )
    )


def frame(message: str, *, kind: str, code: str | int) -> bytes:
    """Write an error inside a stream of which nothing else is known."""
    del kind
    return failed(message, code=code, shell=_NOBODY, number=0)


def frame_of(data: bytes) -> bytes:
    """Put an error body into a frame of a stream."""
    return failed(text_of(data) or "The engine answered with an error.", code="server_error", shell=_NOBODY, number=0)
