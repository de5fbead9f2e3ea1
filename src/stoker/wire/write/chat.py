"""How is an answer written in chat chunks, or as one chat completion?"""

from typing import Final

import msgspec

from stoker.wire.usage import Usage
from stoker.wire.write.parts import Kind, Parts
from stoker.wire.write.writer import quoted

_encode = msgspec.json.encode
_TAIL: Final = b'},"logprobs":null,"finish_reason":null}]}\n\n'


class Shell(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same in every chunk of one answer."""

    id: str
    model: str
    created: int

    def head(self, kind: bytes) -> bytes:
        """Write the members that come first."""
        return b'{"id":%b,"object":"%b","created":%d,"model":%b,' % (
            quoted(self.id),
            kind,
            self.created,
            quoted(self.model),
        )


def usage_of(usage: Usage) -> bytes:
    """Write the usage member."""
    prompt, output = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details, thought = usage.prompt_tokens_details, usage.completion_tokens_details
    return (
        b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},'
        b'"completion_tokens_details":{"reasoning_tokens":%d}}'
        % (
            prompt,
            output,
            prompt + output,
            (details.cached_tokens or 0) if details is not None else 0,
            (thought.reasoning_tokens or 0) if thought is not None else 0,
        )
    )


class Chunks:
    """Writes chunks."""

    __slots__ = ("_calls", "_delta", "_finish", "_head", "_out", "_strip", "_text")

    def __init__(self, shell: Shell, *, strip_usage: bool) -> None:
        self._head = b"data: " + shell.head(b"chat.completion.chunk")
        self._delta = self._head + b'"choices":[{"index":0,"delta":{'
        self._text = self._delta + b'"content":"'
        self._strip = strip_usage
        self._out: list[bytes] = []
        self._calls: dict[int, int] = {}  # the engine's number of a call: its place among the calls
        self._finish = ""

    def start(self) -> None:
        """Write the role."""
        self._out.append(self._delta + b'"role":"assistant","content":""' + _TAIL)

    def text(self, piece: bytes, logprobs: bytes = b"") -> None:
        """Write text."""
        if logprobs:
            tail = b'"},"logprobs":{"content":%b,"refusal":null},"finish_reason":null}]}\n\n' % logprobs
            self._out.append(self._text + piece + tail)
        else:
            self._out.append(self._text + piece + b'"' + _TAIL)

    def refusal(self, piece: bytes) -> None:
        """Write text with which the model refuses."""
        self._out.append(b'%b"refusal":"%b"%b' % (self._delta, piece, _TAIL))

    def reasoning(self, piece: bytes) -> None:
        """Write reasoning, in the member that most clients of such engines read."""
        self._out.append(b'%b"reasoning_content":"%b"%b' % (self._delta, piece, _TAIL))

    def tool(self, index: int, id: str, name: str) -> None:  # noqa: A002
        """Begin a call."""
        place = self._calls[index] = len(self._calls)
        call = b'"tool_calls":[{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":""}}]'
        self._out.append(self._delta + call % (place, quoted(id), quoted(name)) + _TAIL)

    def arguments(self, index: int, piece: bytes) -> None:
        """Write a piece of arguments."""
        call = b'"tool_calls":[{"index":%d,"function":{"arguments":"%b"}}]'
        self._out.append(self._delta + call % (self._calls[index], piece) + _TAIL)

    def end(self, finish: str, sequence: str = "") -> None:  # noqa: ARG002 -- the dialect has no member for it
        """Write why it ended: who made a tool call must not look finished."""
        finish = "tool_calls" if self._calls and finish == "stop" else finish
        self._out.append(b'%b},"logprobs":null,"finish_reason":%b}]}\n\n' % (self._delta, quoted(finish)))

    def close(self, usage: Usage) -> None:
        """Write usage, where it was asked for, and the terminator."""
        if not self._strip:
            self._out.append(b'%b"choices":[],"usage":%b}\n\n' % (self._head, usage_of(usage)))
        self._out.append(b"data: [DONE]\n\n")

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


def completion(parts: Parts, shell: Shell) -> bytes:
    """Write an answer in one piece."""
    text, refusal, reasoning = (parts.joined(kind) for kind in (Kind.TEXT, Kind.REFUSAL, Kind.REASONING))
    message = b'{"role":"assistant","content":%b,"refusal":%b' % (_or_null(text), _or_null(refusal))
    if reasoning:
        message += b',"reasoning_content":"%b"' % reasoning
    calls = [
        b'{"id":%b,"type":"function","function":{"name":%b,"arguments":"%b"}}'
        % (quoted(call.id), quoted(call.name), bytes(call.text) or b"{}")
        for call in parts.calls
    ]
    if calls:
        message += b',"tool_calls":[%b]' % b",".join(calls)
    tokens = [item for part in parts.all for piece in part.logprobs for item in msgspec.json.decode(piece)]
    logprobs = _encode({"content": tokens, "refusal": None}) if tokens else b"null"
    choice = b'{"index":0,"message":%b},"logprobs":%b,"finish_reason":%b}' % (message, logprobs, quoted(parts.stop()))
    return b'%b"choices":[%b],"usage":%b}' % (shell.head(b"chat.completion"), choice, usage_of(parts.usage))


def _or_null(piece: bytes) -> bytes:
    return b'"%b"' % piece if piece else b"null"
