"""What is in the words of an engine: an answer, hidden reasoning, or a tool call that its parser did not read?"""

from typing import Any, Final

import msgspec

from stoker.facts.ending import Flag
from stoker.wire.follow import Follow
from stoker.wire.scan.markup import Markup
from stoker.wire.scan.think import Think
from stoker.wire.write.writer import Writer, inside

_PARSES_ITSELF: Final = frozenset({"llama.cpp"})  # engines that never leave reasoning inside content
_OPENS: Final = (b"<", b" ", b"\\", b'"')  # how a thought may begin, or a text without any word
_NOTHING: Final = (b"", b'""', b"null", b"[]")


def said(raw: msgspec.Raw) -> bool:
    """Whether a member says anything."""
    size = len(raw)
    return size > 4 or (size > 0 and bytes(raw) not in _NOTHING)  # most members are absent: nothing is copied for them


class Heard:
    """Sorts the words of one answer; ``plain``: there is nothing to sort, visible text is all that it can be."""

    __slots__ = ("_markup", "_think", "_writer", "plain")

    def __init__(self, *, writer: Writer | None, tools: bool, engine: str) -> None:
        self._writer = writer
        self._markup = Markup() if tools else None
        self._think = None if engine in _PARSES_ITSELF else Think()
        self.plain = writer is None and self._markup is None and self._think is None

    def simple(self, raw: bytes) -> bool:
        """Whether a whole text is plainly an answer: nobody translates it, no thought and no call can hide in it."""
        if self._writer is not None or self._markup is not None or raw[:1] != b'"':
            return False
        return self._think is None or (raw[1:2] not in _OPENS and is_text(raw))

    def reasoning(self, follow: Follow, raw: bytes) -> None:
        """Take reasoning that the engine told apart: then none is left in its content."""
        self._no_thought()
        follow.thought()
        if self._writer is not None:
            for _, piece in pieces_of(follow, raw):
                self._writer.reasoning(piece)

    def refusal(self, follow: Follow, raw: bytes, now: float) -> None:
        """Take words with which the model refuses."""
        follow.spoke(now)
        if self._writer is not None:
            for _, piece in pieces_of(follow, raw):
                self._writer.refusal(piece)

    def content(self, follow: Follow, raw: bytes, now: float, logprobs: bytes = b"") -> None:
        """Take content: a JSON string, or a list of parts."""
        if self.plain:
            follow.spoke(now)
            return
        for thought, piece in pieces_of(follow, raw):
            if thought:
                self._thought(follow, piece)
            elif self._think is None:
                self._spoken(follow, piece, now, logprobs)
            else:
                self._sort(follow, self._think, piece, now)

    def rest(self, follow: Follow, now: float) -> None:
        """Take what was held back, when nothing more comes."""
        if self._think is not None:
            said = self._think.rest()
            self._no_thought()
            if said.reasoning:
                self._thought(follow, said.reasoning)
            if said.text:
                self._spoken(follow, said.text, now, b"")

    def _sort(self, follow: Follow, think: Think, piece: bytes, now: float) -> None:
        said = think.feed(piece)
        if think.over:
            self._no_thought()
        if said.reasoning:
            self._thought(follow, said.reasoning)
        if said.text:
            self._spoken(follow, said.text, now, b"")

    def _thought(self, follow: Follow, piece: bytes) -> None:
        follow.thought()
        if self._writer is not None:
            self._writer.reasoning(piece)

    def _spoken(self, follow: Follow, piece: bytes, now: float, logprobs: bytes) -> None:
        follow.spoke(now)
        if self._markup is not None and self._markup.look(piece):
            self._markup = None
            self.plain = self._writer is None and self._think is None
            follow.flag(Flag.TOOL_PARSE_FAILED)
        if self._writer is not None:
            self._writer.text(piece, logprobs)

    def _no_thought(self) -> None:
        if self._think is not None:
            self._think = None
            self.plain = self._writer is None and self._markup is None


def pieces_of(follow: Follow, raw: bytes) -> list[tuple[bool, bytes]]:
    """Give text as the insides of JSON strings, each with whether it is reasoning; Mistral writes a list of parts."""
    if raw[:1] == b'"':
        if not is_text(raw):
            follow.broken = True
            return []
        return [(False, raw[1:-1])]
    if raw[:1] != b"[":
        return []
    parts: list[Any] = msgspec.json.decode(raw)
    found = []
    for part in parts:
        if isinstance(part, dict):
            thought = part.get("type") == "thinking"
            found.append((thought, inside(_text(part.get("thinking" if thought else "text")))))
    return [(thought, piece) for thought, piece in found if piece]


def _text(value: object) -> str:
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


def is_text(raw: bytes) -> bool:
    """Whether bytes are UTF-8: JSON that is skipped over is not checked for it."""
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
