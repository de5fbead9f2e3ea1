"""How is an answer written in one piece? Collected here, written by its dialect at the end."""

from collections.abc import Callable

from stoker.wire.usage import Usage
from stoker.wire.write.parts import Kind, Parts


class Whole:
    """Collects an answer."""

    __slots__ = ("_parts", "_write")

    def __init__(self, write: Callable[[Parts], bytes]) -> None:
        self._parts = Parts()
        self._write = write

    def start(self) -> None:
        """Nothing is written before the end."""

    def text(self, piece: bytes, logprobs: bytes = b"") -> None:
        """Keep text."""
        part = self._parts.run(Kind.TEXT)
        part.text += piece
        if logprobs:
            part.logprobs.append(logprobs)

    def refusal(self, piece: bytes) -> None:
        """Keep text with which the model refuses."""
        self._parts.run(Kind.REFUSAL).text += piece

    def reasoning(self, piece: bytes) -> None:
        """Keep reasoning."""
        self._parts.run(Kind.REASONING).text += piece

    def tool(self, index: int, id: str, name: str) -> None:  # noqa: A002
        """Begin a call."""
        self._parts.tool(index, id, name)

    def arguments(self, index: int, piece: bytes) -> None:
        """Keep a piece of arguments."""
        self._parts.call(index).text += piece

    def end(self, finish: str, sequence: str = "") -> None:
        """Keep why it ended."""
        self._parts.finish, self._parts.sequence = finish, sequence

    def close(self, usage: Usage) -> None:
        """Keep what it used."""
        self._parts.usage = usage

    def take(self) -> bytes:
        """Nothing goes out before the end."""
        return b""

    def body(self) -> bytes:
        """Write the answer."""
        return self._write(self._parts)
