"""What do we say ourselves inside a client's stream: that we are alive, and what went wrong?"""

from typing import Final

from stoker.wire.errors import frame


class OpenAI:
    """What we say ourselves in chat and completions streams."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        """Write a comment."""
        return b": keep-alive\n\n"

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write an error frame: openai clients raise on it."""
        return frame(message, kind=kind, code=code)


OPENAI: Final = OpenAI()
