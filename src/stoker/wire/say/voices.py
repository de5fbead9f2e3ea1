"""What do we say ourselves inside a client's stream: that we are alive, and what went wrong?"""

from typing import Final

from stoker.wire import errors
from stoker.wire.say import anthropic_errors
from stoker.wire.say.response_object import Shell
from stoker.wire.say.responses_errors import failed


class OpenAI:
    """Chat and completions streams."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        """Write a comment."""
        return b": keep-alive\n\n"

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write an error frame: openai clients raise on it."""
        return errors.frame(message, kind=kind, code=code)


class Messages:
    """Messages streams."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        """Write a ping; clients take it at any time, also before the message starts."""
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write an error event: anthropic clients raise on it."""
        return anthropic_errors.frame(message, kind=kind, code=code)


class Responses:
    """Responses streams: whoever writes events shares the numbering with our signs of life.

    A comment does not reset Codex's idle limit, a real event does; and the first event must be ``response.created``.
    """

    __slots__ = ("created", "number", "shell")

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.created = False
        self.number = 0  # of the next event

    def event(self, name: bytes, rest: bytes) -> bytes:
        """Write one event; ``rest``: its members behind the sequence number."""
        number = self.number
        self.number = number + 1
        return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (name, name, number, rest)

    def open(self) -> bytes:
        """Write the first event, once."""
        if self.created:
            return b""
        self.created = True
        return self.event(b"response.created", b'"response":%b' % self.shell.write(b"in_progress"))

    def keep_alive(self) -> bytes:
        """Write ``response.created`` at first, then ``response.in_progress`` again and again."""
        first = self.open()
        return first or self.event(b"response.in_progress", b'"response":%b' % self.shell.write(b"in_progress"))

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Write the end of a failed answer."""
        del kind
        first = self.open()
        number = self.number
        self.number = number + 1
        return first + failed(message, code=code, shell=self.shell, number=number)


class Silent:
    """An answer that the client gets in one piece: nothing can be said before it, and an error is its status."""

    __slots__ = ()

    def keep_alive(self) -> bytes:
        """Say nothing."""
        return b""

    def failure(self, message: str, *, kind: str, code: str | int) -> bytes:
        """Say nothing."""
        del message, kind, code
        return b""


OPENAI: Final = OpenAI()
MESSAGES: Final = Messages()
SILENT: Final = Silent()
