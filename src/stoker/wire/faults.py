"""What does an engine's refusal mean, and in which words does a client of each dialect act on it?

One table, engine by engine, of the sentences that say "too long"; what is no refusal of that kind is known by its
status. Clients do not read prose: Claude Code shrinks and goes on only on two exact sentences, openai clients and Codex
only on the code ``context_length_exceeded``; everything else they repeat, or show.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

OVERFLOW_CODE: Final = "context_length_exceeded"


class Kind(StrEnum):
    """What went wrong, whoever says it."""

    OVERFLOW = "overflow"  # the prompt, or prompt and output together, exceed the context
    REQUEST = "request"  # the engine cannot do what was asked; asking again is of no use
    NOT_FOUND = "not_found"  # the engine knows no such model or path: our routes and the engine disagree
    CREDENTIAL = "credential"  # the engine refuses our own credential: no client can mend that
    BUSY = "busy"  # too many requests, or not ready
    ENGINE = "engine"  # the engine failed


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. Counts are in tokens; 0: the engine did not say."""

    kind: Kind
    status: int  # for the client
    text: str = ""  # what the engine said
    prompt: int = 0
    output: int = 0
    context: int = 0
    least: bool = False  # the prompt was not counted: it has at least so many


class _LlamaDetail(msgspec.Struct):
    type: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class _Llama(msgspec.Struct):
    error: _LlamaDetail


_N: Final = r"(\d[\d,]*)(?:\.0)?"


def _words(*pieces: str) -> re.Pattern[str]:
    return re.compile(r"[\s\S]{0,300}?".join(pieces), re.IGNORECASE)


# Each finds the numbers that it names. The first that matches counts, so the ones with more numbers stand first.
_OVERFLOWS: Final = (
    # vLLM, and OpenAI's own: maximum … is C tokens … requested T tokens (A in the messages, B in the completion)
    (
        _words(
            rf"maximum context length (?:is|of) (?P<context>{_N}) tokens",
            rf"\((?P<prompt>{_N}) (?:tokens )?(?:in|from) the (?:messages|input|prompt)",
            rf"(?P<output>{_N}) (?:tokens )?(?:in|for) the completion",
        )
    ),
    # vLLM: max_tokens is too large: B. … maximum context length is C tokens and your request has A input tokens
    (
        _words(
            rf"too large: (?P<output>{_N})",
            rf"context length is (?P<context>{_N}) tokens",
            rf"has (?P<prompt>{_N}) input",
        )
    ),
    # vLLM: You passed A input tokens and requested B output tokens. … context length is only C tokens
    (
        _words(
            rf"passed (?P<prompt>{_N}) input tokens",
            rf"requested (?P<output>{_N}) output",
            rf"context length is only (?P<context>{_N})",
        )
    ),
    # SGLang: maximum context length of C tokens. You requested a total of T tokens: A tokens from the input …
    (
        _words(
            rf"context length of (?P<context>{_N}) tokens",
            rf"(?P<prompt>{_N}) tokens from the input",
            rf"(?P<output>{_N}) tokens for the completion",
        )
    ),
    # TensorRT-LLM: The sum of prompt length (A), query length (…) and max_tokens (B) should not exceed … (C)
    (
        _words(
            rf"sum of prompt length \((?P<prompt>{_N})\)",
            rf"max_tokens \((?P<output>{_N})\)",
            rf"not exceed [a-z_ ]*\((?P<context>{_N})\)",
        )
    ),
    # Anthropic, and ourselves: A + B > C
    (_words(rf"exceed context limit: (?P<prompt>{_N}) \+ (?P<output>{_N}) > (?P<context>{_N})")),
    (_words(rf"prompt is too long: (?P<prompt>{_N}) tokens > (?P<context>{_N})")),
    (_words(rf"context length is (?P<context>{_N}) tokens; the prompt has (?:at least )?(?P<prompt>{_N})")),
    # vLLM: The decoder prompt (length A) is longer than the maximum model length of C
    (
        _words(
            rf"prompt \(length (?P<prompt>{_N})\)",
            rf"(?:maximum model|context|max_model_len)[a-z_ ]* (?:of|is) (?P<context>{_N})",
        )
    ),
    # SGLang: The input (A tokens) is longer than the model's context length (C tokens)
    (_words(rf"input \((?P<prompt>{_N}) tokens\) is longer", rf"context length \((?P<context>{_N}) tokens")),
    # TensorRT-LLM: Prompt length (A) exceeds maximum input length (C)
    (_words(rf"prompt length \((?P<prompt>{_N})\)", rf"input length \((?P<context>{_N})\)")),
    (
        _words(
            rf"(?:maximum )?context length (?:is|of)(?: only)? (?P<context>{_N})", r"(?:exceed|requested|longer|reduce)"
        )
    ),
    (_words(r"context_length_exceeded")),
)
# An engine that fails on a request's own fault says so by 500; asking again would fail again.
_CLIENTS_FAULT: Final = re.compile(
    r"unsupported (?:tool|content|param|value|role)|unknown tool|invalid (?:tool|schema|grammar|json)|failed to parse"
    r"|is not (?:a )?(?:supported|valid)|not supported by (?:this )?(?:model|server)|image input|mmproj"
    r"|missing required|must be (?:a|an|one of)|chat template",
    re.IGNORECASE,
)


def recognise(status: int, body: bytes) -> Fault:
    """Say what an engine's error answer means."""
    text = body[:8192].decode("utf-8", "replace")
    overflow = _overflow(status, body, text)
    if overflow is not None:
        return overflow
    if status in (401, 403):
        return Fault(kind=Kind.CREDENTIAL, status=502, text=text)
    if status == 404:
        return Fault(kind=Kind.NOT_FOUND, status=502, text=text)
    if status in (408, 425, 429, 503, 529):
        return Fault(kind=Kind.BUSY, status=429 if status == 429 else 503, text=text)
    if status < 500 or (status == 500 and _CLIENTS_FAULT.search(text)):
        return Fault(kind=Kind.REQUEST, status=status if status < 500 else 400, text=text)
    return Fault(kind=Kind.ENGINE, status=status, text=text)


def _overflow(status: int, body: bytes, text: str) -> Fault | None:
    if status not in (400, 413, 422, 500):
        return None
    if b"exceed_context_size" in body:
        try:
            said = msgspec.json.decode(body, type=_Llama).error
        except msgspec.DecodeError:
            said = _LlamaDetail()
        return Fault(kind=Kind.OVERFLOW, status=400, text=text, prompt=said.n_prompt_tokens, context=said.n_ctx)
    for pattern in _OVERFLOWS:
        found = pattern.search(text)
        if found is not None:
            numbers = {name: int(float(value.replace(",", ""))) for name, value in found.groupdict().items() if value}
            fault = Fault(kind=Kind.OVERFLOW, status=400, text=text)
            for name, value in numbers.items():
                fault = msgspec.structs.replace(fault, **{name: value})
            return fault
    return None


def overflow_words(dialect: str, fault: Fault) -> str:
    """Say "too long" in the words on which clients of a dialect act."""
    prompt, output, context = fault.prompt, fault.output, fault.context
    if dialect == "messages":
        if prompt and output and prompt < context:
            return (
                f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {context}, "
                "decrease input length or `max_tokens` and try again"
            )
        return f"prompt is too long: {prompt or context + 1} tokens > {context or 'the'} maximum"
    limit = f"This model's maximum context length is {context} tokens" if context else "The model's context is shorter"
    has = f"the prompt has {'at least ' if fault.least else ''}{prompt}"
    if prompt and output and prompt < context:
        return f"{limit}; {has} and {output} were asked for. Shorten it, or ask for fewer."
    return f"{limit}; {has}. Shorten it." if prompt else f"{limit} than this prompt. Shorten it."
