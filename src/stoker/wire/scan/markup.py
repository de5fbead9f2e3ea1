"""Did an engine leave a tool call unread in its text?"""

import re
from typing import Final

_TAG: Final = re.compile(
    # DeepSeek's marks use a full-width bar and a block.
    rb"<tool_call>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_calls?_section_begin\|>|<\|tool_call_begin\|>"
    rb"|<tool_use>|<\|channel\|>commentary to=|" + "<\uff5ctool\u2581calls\u2581begin\uff5c>".encode()
)
_LONGEST: Final = 40


class Markup:
    """Looks for the marks that models put around calls; a mark may be cut anywhere."""

    __slots__ = ("_tail", "found")

    def __init__(self) -> None:
        self._tail = b""
        self.found = False

    def look(self, piece: bytes) -> bool:
        """Look at a piece of text; True when a mark is there."""
        tail = self._tail
        if not tail and b"<" not in piece and b"[" not in piece:
            return False
        data = tail + piece
        self.found = _TAG.search(data) is not None
        at = max(data.rfind(b"<"), data.rfind(b"["))
        self._tail = data[at:] if at >= 0 and len(data) - at < _LONGEST else b""
        return self.found
