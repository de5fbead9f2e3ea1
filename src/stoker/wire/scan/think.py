"""Is what an engine calls content really hidden reasoning?

An engine without a reasoning parser sends ``<think>…</think>`` as the beginning of its content. Pieces are the inside
of JSON strings; a tag may be cut anywhere, so what could be its beginning is held back until it is known.
"""

from typing import Final

from msgspec import Struct

_OPEN: Final = b"<think>"
_SHUT: Final = b"</think>"
_SPACE: Final = (b" ", b"\\n", b"\\r", b"\\t")


class Said(Struct, frozen=True):
    """What a piece turned out to be; both may be empty while a tag is half here."""

    reasoning: bytes = b""
    text: bytes = b""


class Think:
    """Tells reasoning inside content from the answer."""

    __slots__ = ("_behind", "_held", "_inside", "over")

    def __init__(self) -> None:
        self._behind = False  # the reasoning is over, and nothing but space has come since
        self._held = b""
        self._inside = False
        self.over = False  # from here on everything is text

    def feed(self, piece: bytes) -> Said:
        """Sort one piece of content."""
        if self._behind:
            return self._first(piece)
        data = self._held + piece
        self._held = b""
        if not self._inside:
            bare = _stripped(data)
            if not bare.startswith(_OPEN):
                if _OPEN.startswith(bare):
                    self._held = data
                    return Said()
                self.over = True
                return Said(text=data)
            self._inside = True
            data = bare[len(_OPEN) :]
        at = data.find(_SHUT)
        if at >= 0:
            self._behind = True
            return Said(reasoning=data[:at], text=self._first(data[at + len(_SHUT) :]).text)
        keep = next((n for n in range(min(len(_SHUT) - 1, len(data)), 0, -1) if data.endswith(_SHUT[:n])), 0)
        self._held = data[len(data) - keep :]
        return Said(reasoning=data[: len(data) - keep])

    def _first(self, data: bytes) -> Said:
        """Give the beginning of the answer, without the space between it and the tag."""
        text = _stripped(data)
        self.over = bool(text)
        return Said(text=text)

    def rest(self) -> Said:
        """Give what was held back when nothing more comes."""
        held, self._held = self._held, b""
        self.over = True
        return Said(reasoning=held) if self._inside else Said(text=held)


def _stripped(data: bytes) -> bytes:
    while data.startswith(_SPACE):
        data = data[1:] if data[:1] == b" " else data[2:]
    return data
