"""How is the first line of an answer written, and a head that only tells how long its body is?"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

_HEADS: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}


def head(status: int) -> bytes:
    """Write the status line; an unregistered status gets an empty reason, which is allowed."""
    return _HEADS.get(status) or b"HTTP/1.1 %d \r\n" % status


def framing(method: bytes, headers: Mapping[bytes, bytes], *, http10: bool) -> bytes:
    """Write a head that frames its body as another one does, and says nothing else."""
    named = (b"content-length", b"transfer-encoding")
    lines = b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in named if name in headers)
    return b"%b / HTTP/1.%d\r\n%b\r\n" % (method, not http10, lines)
