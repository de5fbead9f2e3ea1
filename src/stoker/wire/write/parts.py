"""What does an answer consist of, in the order in which it came?"""

from enum import Enum, auto

from stoker.wire.usage import Usage


class Kind(Enum):
    """What a part is."""

    TEXT = auto()
    REFUSAL = auto()
    REASONING = auto()
    TOOL = auto()


class Part:
    """One run of text or one tool call. ``text`` is the inside of a JSON string: words, or arguments."""

    __slots__ = ("at", "id", "index", "kind", "logprobs", "name", "text")

    def __init__(self, kind: Kind, at: int, *, index: int = -1, id: str = "", name: str = "") -> None:  # noqa: A002
        self.kind = kind
        self.at = at  # its place among the parts
        self.index = index  # the engine's number of a call
        self.id = id
        self.name = name
        self.text = bytearray()
        self.logprobs: list[bytes] = []


class Parts:
    """The parts of one answer, put together piece by piece."""

    __slots__ = ("_calls", "all", "finish", "last", "sequence", "usage")

    def __init__(self) -> None:
        self.all: list[Part] = []
        self.last: Part | None = None
        self._calls: dict[int, Part] = {}
        self.finish = ""
        self.sequence = ""
        self.usage = Usage()

    def run(self, kind: Kind) -> Part:
        """Give the open run of a kind, or begin one."""
        last = self.last
        if last is None or last.kind is not kind:
            last = self.last = Part(kind, len(self.all))
            self.all.append(last)
        return last

    def tool(self, index: int, id: str, name: str) -> Part:  # noqa: A002
        """Begin a call."""
        call = self.last = self._calls[index] = Part(Kind.TOOL, len(self.all), index=index, id=id, name=name)
        self.all.append(call)
        return call

    def call(self, index: int) -> Part:
        """Give the call with an engine's number."""
        return self._calls[index]

    @property
    def calls(self) -> list[Part]:
        """The tool calls."""
        return [part for part in self.all if part.kind is Kind.TOOL]

    def joined(self, kind: Kind) -> bytes:
        """Join all runs of a kind."""
        return b"".join(bytes(part.text) for part in self.all if part.kind is kind)

    def stop(self) -> str:
        """Say why the answer ended: who made a tool call must never look finished, who was cut never complete."""
        return "tool_calls" if self._calls and self.finish in ("stop", "") else self.finish
