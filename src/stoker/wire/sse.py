"""Where does one server-sent event end and the next begin? Bytes in, whole events out, cut anywhere.

Lines end in LF, CRLF or CR; an empty line ends an event; ``data`` lines of one event are joined by LF; a line that
begins with a colon is a comment. The bytes of an event are never changed: whoever forwards them forwards the original.
"""

import re
from typing import Final

_BLANK: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
_LINE: Final = re.compile(rb"\r\n|\n|\r")
MAX_EVENT_BYTES: Final = 16 << 20


class Splitter:
    """Cuts a byte stream into events, each with its own terminating empty line."""

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; give the events that are now complete."""
        if self.tail:
            data = self.tail + data
        if b"\r" in data:
            return self._slowly(data)
        end = data.rfind(b"\n\n")
        if end < 0:
            self.tail = data
            return []
        end += 2
        self.tail = data[end:]
        if data.find(b"\n\n") == end - 2:  # the usual case: one event a read
            return [data if end == len(data) else data[:end]]
        return [event + b"\n\n" for event in data[: end - 2].split(b"\n\n")]

    def _slowly(self, data: bytes) -> list[bytes]:
        events = []
        start = 0
        for blank in _BLANK.finditer(data):
            if data[blank.end() - 1 :] == b"\r":
                break  # a CR at the very end may be the first half of a CRLF
            events.append(data[start : blank.end()])
            start = blank.end()
        self.tail = data[start:]
        return events


def data_of(event: bytes) -> bytes | None:
    """Read the data of one event, or None for a comment or an event without data."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2:
        return event[6:-2]
    lines = []
    for line in _LINE.split(event):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
