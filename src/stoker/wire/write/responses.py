"""How is an answer written as responses events, or as one response object?

Numbers and the first event are shared with our signs of life (`stoker.wire.say.voices.Responses`): a client that was
kept waiting has already seen ``response.created``.
"""

from collections.abc import Mapping
from typing import Final

from stoker.wire.say.response_object import Shell, usage_of
from stoker.wire.say.voices import Responses
from stoker.wire.usage import Usage
from stoker.wire.write.parts import Kind, Part, Parts
from stoker.wire.write.writer import quoted

_PREFIX: Final = {Kind.TEXT: "msg", Kind.REFUSAL: "msg", Kind.REASONING: "rs", Kind.TOOL: "fc"}
_EMPTY: Final = {
    Kind.TEXT: b'{"type":"output_text","text":"","annotations":[],"logprobs":[]}',
    Kind.REFUSAL: b'{"type":"refusal","refusal":""}',
    Kind.REASONING: b'{"type":"reasoning_text","text":""}',
}
_DONE: Final = {
    Kind.TEXT: b"response.output_text.done",
    Kind.REFUSAL: b"response.refusal.done",
    Kind.REASONING: b"response.reasoning_text.done",
}
_INCOMPLETE: Final = {"length": b"incomplete:max_output_tokens", "content_filter": b"incomplete:content_filter"}


class Items:
    """Writes the items of an answer."""

    __slots__ = ("_names", "_seed")

    def __init__(self, seed: str, names: Mapping[str, tuple[str, str]]) -> None:
        self._seed = seed
        self._names = names

    def id(self, part: Part) -> str:
        """Name an item: the same in every event and in the whole."""
        return f"{_PREFIX[part.kind]}_{self._seed}_{part.at}"

    def content(self, part: Part) -> bytes:
        """Write the content of a message or of reasoning."""
        if part.kind is Kind.TEXT:
            logprobs = b",".join(piece[1:-1] for piece in part.logprobs if len(piece) > 2)
            return b'{"type":"output_text","text":"%b","annotations":[],"logprobs":[%b]}' % (bytes(part.text), logprobs)
        if part.kind is Kind.REFUSAL:
            return b'{"type":"refusal","refusal":"%b"}' % bytes(part.text)
        return b'{"type":"reasoning_text","text":"%b"}' % bytes(part.text)

    def item(self, part: Part, *, status: bytes = b"completed") -> bytes:
        """Write one item; while it is in progress it is empty."""
        id_ = quoted(self.id(part))
        content = b"" if status == b"in_progress" else self.content(part) if part.kind is not Kind.TOOL else b""
        if part.kind is Kind.REASONING:
            return b'{"id":%b,"type":"reasoning","status":"%b","summary":[],"content":[%b]}' % (id_, status, content)
        if part.kind is Kind.TOOL:
            space, name = self._names.get(part.name, ("", part.name))
            inside = b',"namespace":%b' % quoted(space) if space else b""
            arguments = b"" if status == b"in_progress" else bytes(part.text) or b"{}"
            return b'{"id":%b,"type":"function_call","status":"%b","arguments":"%b","call_id":%b,"name":%b%b}' % (
                id_,
                status,
                arguments,
                quoted(part.id),
                quoted(name),
                inside,
            )
        shape = b'{"id":%b,"type":"message","status":"%b","role":"assistant","content":[%b]}'
        return shape % (id_, status, content)

    def output(self, parts: Parts) -> bytes:
        """Write all items; what was cut off by the output limit says so."""
        cut = parts.finish in _INCOMPLETE
        last = parts.all[-1] if parts.all else None
        return b",".join(
            self.item(part, status=b"incomplete" if cut and part is last else b"completed") for part in parts.all
        )


def response(parts: Parts, shell: Shell, items: Items) -> bytes:
    """Write an answer in one piece."""
    status = _INCOMPLETE.get(parts.finish, b"completed")
    return shell.write(status, output=items.output(parts), usage=usage_of(parts.usage))


class Events:
    """Writes events."""

    __slots__ = ("_delta", "_items", "_open", "_out", "_parts", "_voice")

    def __init__(self, voice: Responses, items: Items) -> None:
        self._voice = voice
        self._items = items
        self._parts = Parts()
        self._open: Part | None = None
        self._out: list[bytes] = []
        self._delta = b""  # how the deltas of the open part go on behind their number

    def start(self) -> None:
        """Write the first events, as far as the client has not seen them."""
        voice = self._voice
        first = voice.open()
        if first:
            self._out += (
                first,
                voice.event(b"response.in_progress", b'"response":%b' % voice.shell.write(b"in_progress")),
            )

    def text(self, piece: bytes, logprobs: bytes = b"") -> None:
        """Write text."""
        part = self._run(Kind.TEXT)
        part.text += piece
        if logprobs:
            part.logprobs.append(logprobs)
        self._piece(b"response.output_text.delta", piece, b',"logprobs":%b' % (logprobs or b"[]"))

    def refusal(self, piece: bytes) -> None:
        """Write text with which the model refuses."""
        self._run(Kind.REFUSAL).text += piece
        self._piece(b"response.refusal.delta", piece, b"")

    def reasoning(self, piece: bytes) -> None:
        """Write reasoning."""
        self._run(Kind.REASONING).text += piece
        self._piece(b"response.reasoning_text.delta", piece, b"")

    def tool(self, index: int, id: str, name: str) -> None:  # noqa: A002
        """Begin a call."""
        self._shut()
        self._begin(self._parts.tool(index, id, name))

    def arguments(self, index: int, piece: bytes) -> None:
        """Write a piece of arguments, also of a call that is not the last."""
        part = self._parts.call(index)
        part.text += piece
        rest = b'"item_id":%b,"output_index":%d,"delta":"%b"' % (quoted(self._items.id(part)), part.at, piece)
        self._out.append(self._voice.event(b"response.function_call_arguments.delta", rest))

    def end(self, finish: str, sequence: str = "") -> None:
        """Keep why it ended until usage is known."""
        self._parts.finish, self._parts.sequence = finish, sequence

    def close(self, usage: Usage) -> None:
        """Write the end: every item as it is, then the whole."""
        parts = self._parts
        parts.usage = usage
        self._shut()
        for call in parts.calls:
            self._finish(call)
        name = b"response.incomplete" if parts.finish in _INCOMPLETE else b"response.completed"
        self._out.append(self._voice.event(name, b'"response":%b' % response(parts, self._voice.shell, self._items)))

    def _run(self, kind: Kind) -> Part:
        part = self._parts.run(kind)
        if part is not self._open:
            self._shut()
            self._begin(part)
        return part

    def _begin(self, part: Part) -> None:
        self._open = part
        event, id_ = self._voice.event, quoted(self._items.id(part))
        item = self._items.item(part, status=b"in_progress")
        self._out.append(event(b"response.output_item.added", b'"output_index":%d,"item":%b' % (part.at, item)))
        self._delta = b'"item_id":%b,"output_index":%d,"content_index":0,' % (id_, part.at)
        if part.kind is not Kind.TOOL:
            self._out.append(event(b"response.content_part.added", self._delta + b'"part":' + _EMPTY[part.kind]))

    def _piece(self, name: bytes, piece: bytes, rest: bytes) -> None:
        self._out.append(self._voice.event(name, b'%b"delta":"%b"%b' % (self._delta, piece, rest)))

    def _shut(self) -> None:
        """End the open part; a call may still get arguments, and is ended at the end of all."""
        part, self._open = self._open, None
        if part is None or part.kind is Kind.TOOL:
            return
        member = b'"refusal"' if part.kind is Kind.REFUSAL else b'"text"'
        rest = b'%b:"%b"' % (member, bytes(part.text))
        if part.kind is Kind.TEXT:
            rest += b',"logprobs":[%b]' % b",".join(piece[1:-1] for piece in part.logprobs if len(piece) > 2)
        event = self._voice.event
        self._out.append(event(_DONE[part.kind], self._delta + rest))
        content = self._delta + b'"part":' + self._items.content(part)
        self._out.append(event(b"response.content_part.done", content))
        item = self._items.item(part)
        self._out.append(event(b"response.output_item.done", b'"output_index":%d,"item":%b' % (part.at, item)))

    def _finish(self, call: Part) -> None:
        event = self._voice.event
        id_, name = quoted(self._items.id(call)), quoted(call.name)
        rest = b'"item_id":%b,"output_index":%d,"name":%b,"arguments":"%b"'
        done = rest % (id_, call.at, name, bytes(call.text) or b"{}")
        self._out.append(event(b"response.function_call_arguments.done", done))
        cut = self._parts.finish in _INCOMPLETE and call is self._parts.all[-1]
        item = self._items.item(call, status=b"incomplete" if cut else b"completed")
        self._out.append(event(b"response.output_item.done", b'"output_index":%d,"item":%b' % (call.at, item)))

    def take(self) -> bytes:
        """Give the frames."""
        out = self._out
        if len(out) == 1:
            return out.pop()
        data = b"".join(out)
        out.clear()
        return data

    def body(self) -> bytes:
        """Have nothing: everything went out."""
        return b""
