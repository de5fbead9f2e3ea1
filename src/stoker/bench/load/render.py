"""How does each dialect write a conversation? Pieces of JSON, made once and joined: no part is written twice."""

from typing import Final, Protocol

import msgspec

from stoker.bench.load.target import Target

TOOL: Final = "look_up"
_PARAMETERS: Final = (
    b'{"type":"object","properties":{"topic":{"type":"string","description":"What to look for."}},"required":["topic"]}'
)
_ABOUT: Final = b"Look something up in the project: a file, a symbol, the output of a command."


class Render(Protocol):
    """One dialect. Texts need no escaping."""

    def user(self, text: bytes) -> bytes:
        """What a person says."""

    def assistant(self, text: bytes) -> bytes:
        """What the model has said."""

    def called(self, text: bytes, number: int, result: bytes) -> bytes:
        """What the model has said with a call, and what the tool gave back."""

    def body(self, head: bytes, pieces: list[bytes], *, most: int, tools: bool) -> bytes:
        """The whole request."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What every body carries besides. ``extra``: members as JSON, without the braces."""

    model: bytes
    exact: bool = False  # ask the engine to go on until the limit, as its own benchmarks do
    extra: bytes = b""

    @property
    def end(self) -> bytes:
        """What stands before the closing brace."""
        forced = b',"ignore_eos":true' if self.exact else b""
        return forced + (b"," + self.extra if self.extra else b"") + b"}"


class Chat:
    """Chat completions."""

    def __init__(self, options: Options) -> None:
        self._begin = b'{"model":%b,"stream":true,"stream_options":{"include_usage":true},"messages":[' % options.model
        self._end = options.end
        function = b'{"name":"%b","description":"%b","parameters":%b}' % (TOOL.encode(), _ABOUT, _PARAMETERS)
        self._tools = b',"tools":[{"type":"function","function":%b}]' % function

    def user(self, text: bytes) -> bytes:
        """What a person says."""
        return b'{"role":"user","content":"%b"}' % text

    def assistant(self, text: bytes) -> bytes:
        """What the model has said."""
        return b'{"role":"assistant","content":"%b"}' % text

    def called(self, text: bytes, number: int, result: bytes) -> bytes:
        """What the model has said with a call, and what the tool gave back."""
        call = b'{"id":"call_%d","type":"function","function":{"name":"%b","arguments":"{\\"topic\\":\\"it\\"}"}}'
        told = b'{"role":"assistant","content":"%b","tool_calls":[%b]},' % (text, call % (number, TOOL.encode()))
        return told + b'{"role":"tool","tool_call_id":"call_%d","content":"%b"}' % (number, result)

    def body(self, head: bytes, pieces: list[bytes], *, most: int, tools: bool) -> bytes:
        """The whole request."""
        system = [b'{"role":"system","content":"%b"}' % head] if head else []
        middle = b",".join([*system, *pieces])
        return b"".join(
            (self._begin, middle, b"]", self._tools if tools else b"", b',"max_tokens":%d' % most, self._end)
        )


class Messages:
    """Anthropic's messages."""

    def __init__(self, options: Options) -> None:
        self._begin = b'{"model":%b,"stream":true' % options.model
        self._end = options.end
        about = (TOOL.encode(), _ABOUT, _PARAMETERS)
        self._tools = b',"tools":[{"name":"%b","description":"%b","input_schema":%b}]' % about

    def user(self, text: bytes) -> bytes:
        """What a person says."""
        return b'{"role":"user","content":"%b"}' % text

    def assistant(self, text: bytes) -> bytes:
        """What the model has said."""
        return b'{"role":"assistant","content":"%b"}' % text

    def called(self, text: bytes, number: int, result: bytes) -> bytes:
        """What the model has said with a call, and what the tool gave back."""
        use = b'{"type":"tool_use","id":"toolu_%d","name":"%b","input":{"topic":"it"}}' % (number, TOOL.encode())
        told = b'{"role":"assistant","content":[{"type":"text","text":"%b"},%b]},' % (text, use)
        back = b'{"type":"tool_result","tool_use_id":"toolu_%d","content":"%b"}' % (number, result)
        return told + b'{"role":"user","content":[%b]}' % back

    def body(self, head: bytes, pieces: list[bytes], *, most: int, tools: bool) -> bytes:
        """The whole request."""
        system = b',"system":"%b"' % head if head else b""
        limit = b',"max_tokens":%d' % most
        parts = (self._begin, system, self._tools if tools else b"", limit, b',"messages":[')
        return b"".join((*parts, b",".join(pieces), b"]", self._end))


class Responses:
    """OpenAI's responses."""

    def __init__(self, options: Options) -> None:
        self._begin = b'{"model":%b,"stream":true,"store":false' % options.model
        self._end = options.end
        function = b'"name":"%b","description":"%b","parameters":%b' % (TOOL.encode(), _ABOUT, _PARAMETERS)
        self._tools = b',"tools":[{"type":"function",%b,"strict":false}]' % function

    def user(self, text: bytes) -> bytes:
        """What a person says."""
        return b'{"type":"message","role":"user","content":"%b"}' % text

    def assistant(self, text: bytes) -> bytes:
        """What the model has said."""
        return b'{"type":"message","role":"assistant","content":"%b"}' % text

    def called(self, text: bytes, number: int, result: bytes) -> bytes:
        """What the model has said with a call, and what the tool gave back."""
        call = b'{"type":"function_call","call_id":"call_%d","name":"%b","arguments":"{\\"topic\\":\\"it\\"}"}'
        back = b'{"type":"function_call_output","call_id":"call_%d","output":"%b"}' % (number, result)
        return b",".join((self.assistant(text), call % (number, TOOL.encode()), back))

    def body(self, head: bytes, pieces: list[bytes], *, most: int, tools: bool) -> bytes:
        """The whole request."""
        system = b',"instructions":"%b"' % head if head else b""
        limit = b',"max_output_tokens":%d' % most
        parts = (self._begin, system, self._tools if tools else b"", limit, b',"input":[')
        return b"".join((*parts, b",".join(pieces), b"]", self._end))


def render(target: Target, *, exact: bool = False, extra: bytes = b"") -> Render:
    """Make the writer of a target's dialect."""
    options = Options(model=msgspec.json.encode(target.model), exact=exact, extra=extra)
    if target.dialect == "messages":
        return Messages(options)
    return Responses(options) if target.dialect == "responses" else Chat(options)
