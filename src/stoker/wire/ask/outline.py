"""Which members has a large request? Found piece by piece, so that the loop goes on meanwhile.

Reading 10 MB of JSON in one go takes 5 ms, in which nobody else is answered. Here only the ends of strings and brackets
are looked for, a few thousand at a time. What lies inside a large member is not judged: the engine will, and whoever
reads it further here takes it as text.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from stoker.wire.request import Asked

_STEPS: Final = 3000  # marks that one turn looks at: one to two milliseconds
_REACH: Final = 1 << 20  # bytes that one look may pass over
_SMALL_BYTES: Final = 64 << 10
_OPAQUE: Final = frozenset({"messages", "prompt", "input", "tools", "instructions", "system", "metadata"})
_BEGIN: Final = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*")
_KEY: Final = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.){0,256}")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_SCALAR: Final = re.compile(rb'[^ \t\r\n,{}\[\]":]{1,64}')
_NEXT: Final = re.compile(rb"[ \t\r\n]*([,}])")
_END: Final = re.compile(rb"[ \t\r\n]*\Z")
_MARK: Final = re.compile(rb'["{}\[\]]')


class Outline:
    """Where the members of one JSON object begin and end."""

    __slots__ = ("_at", "_body", "_depth", "_from", "_in_text", "_key", "_start", "lost", "spans")

    def __init__(self, body: bytes | bytearray) -> None:
        self._body = body
        begin = _BEGIN.match(body)
        self._at = begin.end() if begin is not None else 0
        self._key = b""
        self._start = 0
        self._depth = 0  # brackets that are open inside a member
        self._in_text = False
        self._from = 0  # where a text began, or went on behind its last escaped quote
        self.lost = begin is None  # it is no object, or none that is read here: it must be read in one go
        self.spans: list[tuple[bytes, int, int]] = []

    def more(self) -> bool:
        """Go on for a short while; True: nothing is left to do."""
        left, size = _STEPS, len(self._body)
        while left > 0 and not self.lost:
            if self._at > size:
                self.lost = True
            elif self._in_text:
                left -= self._text()
            elif self._depth:
                left -= self._brackets()
            elif self._key:
                if self._member():
                    return True
            else:
                self._open()
            left -= 1
        return self.lost

    def asked(self, read: Callable[[bytes], Asked]) -> Asked | None:
        """Read what was found; ``read`` gets the small members. None: it must be read in one go. Raises Invalid."""
        if self.lost:
            return None
        body = self._body
        small: list[bytes] = []
        large: dict[str, msgspec.Raw] = {}
        for key, start, end in self.spans:
            name = _name(key)
            large.pop(name, None)  # of a member that is there twice the last one counts
            if end - start <= _SMALL_BYTES:
                small.append(key + b":" + body[start:end])
            elif name in _OPAQUE:
                large[name] = msgspec.Raw(memoryview(body)[start:end])
                small.append(key + b":0")
            elif name in Asked.__struct_fields__:
                return None
        asked = read(b"{%b}" % b",".join(small))
        for name, value in large.items():
            setattr(asked, name, value)
        return asked

    def _open(self) -> None:
        """Take a key and the first byte of its value."""
        key = _KEY.match(self._body, self._at)
        if key is None:
            self.lost = True
            return
        self._key, self._start = key[1], key.end()
        first = self._body[self._start : self._start + 1]
        if first == b'"':
            self._in_text = True
            self._from = self._at = self._start + 1
        elif first in (b"{", b"["):
            self._depth, self._at = 1, self._start + 1
        else:
            scalar = _SCALAR.match(self._body, self._start)
            self.lost = scalar is None
            self._at = scalar.end() if scalar is not None else 0

    def _member(self) -> bool:
        """Close a member; True: it was the last."""
        self.spans.append((self._key, self._start, self._at))
        self._key = b""
        behind = _NEXT.match(self._body, self._at)
        if behind is None:
            self.lost = True
            return True
        self._at = behind.end()
        if behind[1] == b",":
            return False
        self.lost = _END.match(self._body, self._at) is None
        return True

    def _text(self) -> int:
        """Look for the end of a text; gives what that cost, in steps."""
        body, at = self._body, self._at
        end = body.find(b'"', at, at + _REACH)
        if end < 0:
            self._at = at + _REACH
            return 500
        near = max(self._from, end - 32)
        slashes = _run(body, near, end)
        if slashes == end - near:
            slashes = _run(body, self._from, end)
        self._at = end + 1
        if slashes % 2:
            self._from = end + 1
        else:
            self._in_text = False
        return 0

    def _brackets(self) -> int:
        """Look for the next text or bracket; gives what that cost, in steps."""
        at = self._at
        mark = _MARK.search(self._body, at, at + _REACH // 8)
        if mark is None:
            self._at = at + _REACH // 8
            return 1500
        found, self._at = mark[0], mark.end()
        if found == b'"':
            self._in_text, self._from = True, self._at
        else:
            self._depth += 1 if found in (b"{", b"[") else -1
        return 0


def _run(body: bytes | bytearray, start: int, end: int) -> int:
    """Count the backslashes in front of a place."""
    part = body[start:end]
    return len(part) - len(part.rstrip(b"\\"))


def _name(key: bytes) -> str:
    """Read a key; one that cannot be read names nothing that we know."""
    try:
        return msgspec.json.decode(key, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
