"""How is an engine asked for the size of a prompt, in tokens, and what does it answer?

vLLM and the simulated engine take a conversation whole. llama.cpp takes two steps: its template first, then the text.
Other engines have no such question for conversations; for them the engine itself decides what fits.
"""

from typing import Any, Final

import msgspec

LLAMA: Final = "llama.cpp"
_WHOLE: Final = frozenset({"vllm", "simulated"})


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request to an engine. ``path`` is outside of its API prefix."""

    path: bytes
    body: bytes


class _Chat(msgspec.Struct):
    model: str = ""
    messages: msgspec.Raw = msgspec.Raw(b"")
    tools: msgspec.Raw = msgspec.Raw(b"")
    prompt: msgspec.Raw = msgspec.Raw(b"")
    chat_template_kwargs: msgspec.Raw = msgspec.Raw(b"")


class _Answer(msgspec.Struct):
    count: int | None = None
    tokens: list[Any] | None = None
    prompt: str | None = None
    input_tokens: int | None = None


def asks(engine: str) -> bool:
    """Whether an engine can be asked at all."""
    return engine in _WHOLE or engine == LLAMA


def question(engine: str, body: bytes) -> Question | None:
    """Write the first question about a chat or completions body; None: this engine cannot answer it."""
    try:
        chat = msgspec.json.decode(body, type=_Chat)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    given = {
        name: value
        for name in ("messages", "tools", "prompt", "chat_template_kwargs")
        if bytes(value := getattr(chat, name)) not in (b"", b"null")
    }
    if engine in _WHOLE and ("messages" in given or bytes(chat.prompt)[:1] == b'"'):
        return Question(path=b"/tokenize", body=msgspec.json.encode({"model": chat.model, **given}))
    if engine == LLAMA and "messages" in given:
        return Question(path=b"/apply-template", body=msgspec.json.encode(given))
    if engine == LLAMA and bytes(chat.prompt)[:1] == b'"':
        return _llama_text(chat.prompt)
    return None


def _llama_text(text: Any) -> Question:
    body = msgspec.json.encode({"content": text, "add_special": True, "parse_special": True})
    return Question(path=b"/tokenize", body=body)


def answer(engine: str, body: bytes) -> int | Question | None:
    """Read an answer: a count, the next question, or None where it makes no sense."""
    try:
        said = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if said.count is not None:
        return said.count
    if said.input_tokens is not None:
        return said.input_tokens
    if said.tokens is not None:
        return len(said.tokens)
    return _llama_text(said.prompt) if engine == LLAMA and said.prompt is not None else None
