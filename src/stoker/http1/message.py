"""How is the first line of an answer written?"""

from http import HTTPStatus
from typing import Final

_HEADS: Final = {status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}


def head(status: int) -> bytes:
    """Write the status line; an unregistered status gets an empty reason, which is allowed."""
    return _HEADS.get(status) or b"HTTP/1.1 %d \r\n" % status
