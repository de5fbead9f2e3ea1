"""What does the response object of the responses dialect look like at each stage of an answer?

The SDK's type wants most members to be there even where we have nothing to say, so they are written as null.
"""

from typing import Final

import msgspec

from stoker.wire.usage import Usage

_encode = msgspec.json.encode
_SHAPE: Final = (
    b'{"id":%b,"object":"response","created_at":%d,"status":"%b","background":false,"error":%b,'
    b'"incomplete_details":%b,"instructions":null,"max_output_tokens":null,"max_tool_calls":null,"model":%b,'
    b'"output":[%b],"parallel_tool_calls":true,"previous_response_id":null,"prompt_cache_key":null,'
    b'"reasoning":{"effort":null,"summary":null},"service_tier":"default","store":false,"temperature":null,'
    b'"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":null,'
    b'"truncation":"disabled","usage":%b,"user":null,"metadata":{}}'
)
# Codex gives up on the first and tries again on the others; the SDK knows the second and the third.
_CODES: Final = frozenset(
    {"context_length_exceeded", "rate_limit_exceeded", "server_error", "invalid_prompt", "insufficient_quota"}
)


class Shell(msgspec.Struct, frozen=True, kw_only=True):
    """What stays the same in all events of one answer."""

    id: str
    model: str
    created: int

    def write(self, status: bytes, *, output: bytes = b"", usage: bytes = b"null", error: bytes = b"null") -> bytes:
        """Write the object."""
        details = b"null"
        if status.startswith(b"incomplete:"):
            details = b'{"reason":"%b"}' % status[11:]
            status = b"incomplete"
        return _SHAPE % (_encode(self.id), self.created, status, error, details, _encode(self.model), output, usage)


def error_of(message: str, code: str | int) -> bytes:
    """Write the error member."""
    known = code if isinstance(code, str) and code in _CODES else "server_error"
    return _encode({"code": known, "message": message})


def usage_of(usage: Usage | None) -> bytes:
    """Write the usage member."""
    if usage is None:
        return b"null"
    prompt, output = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details, thought = usage.prompt_tokens_details, usage.completion_tokens_details
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":0},"output_tokens":%d,'
        b'"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
        % (
            prompt,
            (details.cached_tokens or 0) if details is not None else 0,
            output,
            (thought.reasoning_tokens or 0) if thought is not None else 0,
            prompt + output,
        )
    )
