"""Which prompts share a beginning? A salted chain of block hashes; bounded, and never any text.

Each hash covers everything from the prompt's start to the end of its block, so two requests share exactly as many
leading hashes as they share leading blocks. The salt stays on the machine: without it nobody can test a guess. Blocks
are 1 KB at first and grow by an eighth after the first 32: 64 of them reach 420 KB.

The order is the one in which engines see a prompt: tools, then system, then messages. Marks for a cache that engines
of ours do not have (``cache_control``) are left out: an agent moves them every turn.
"""

import re
from hashlib import blake2b
from typing import Final

from stoker.wire import normalise

BLOCK_BYTES: Final = 1024
_EVEN: Final = 32
MAX_BLOCKS: Final = 64
HEAD_BYTES: Final = 64 << 10  # what a routing key looks at
_MARK: Final = re.compile(rb',?\s*"cache_control"\s*:\s*(?:\{[^{}]*\}|null)')
_SESSION_HEADERS: Final = dict.fromkeys(
    (
        b"x-claude-code-session-id",
        b"session-id",
        b"thread-id",
        b"x-session-affinity",
        b"x-session-id",
    )
)


def _ends() -> tuple[int, ...]:
    ends, size = [], BLOCK_BYTES
    at = 0
    for index in range(MAX_BLOCKS):
        size += size // 8 if index >= _EVEN else 0
        at += size
        ends.append(at)
    return tuple(ends)


ENDS: Final = _ends()  # where each block ends, in bytes from the prompt's start


REACH: Final = ENDS[-1]


def plain(prompt: bytes) -> bytes:
    """Leave out the marks that no engine of ours sees."""
    return _MARK.sub(b"", prompt) if b'"cache_control"' in prompt else prompt


def blocks(prompt: bytes, *, salt: bytes) -> tuple[str, ...]:
    """Hash the first blocks of a prompt; a last, incomplete one counts too."""
    if len(prompt) <= BLOCK_BYTES:
        return (blake2b(prompt, digest_size=6, key=salt).hexdigest(),) if prompt else ()
    chain = blake2b(digest_size=6, key=salt)
    view = memoryview(prompt)
    hashes = []
    start = 0
    for end in ENDS:
        chain.update(view[start:end])
        hashes.append(chain.copy().hexdigest())
        if end >= len(view):
            break
        start = end
    return tuple(hashes)


def given_session(headers: dict[bytes, bytes], cache_key: str | None) -> bytes:
    """Find the first session key that a known client sent, or nothing."""
    if not _SESSION_HEADERS.keys().isdisjoint(headers):
        return next(headers[name] for name in _SESSION_HEADERS if name in headers)
    return cache_key.encode() if cache_key else b""


def session(given: bytes, *, salt: bytes) -> str:
    """Hash a session key for the record."""
    return blake2b(given, digest_size=8, key=salt).hexdigest() if given else ""


def turn(messages: bytes) -> int:
    """Count the turns of a conversation: the answers that it already holds, and this one."""
    if b'"assistant"' not in messages:  # a quote inside a text is escaped, so this is a member's value
        return 1 if messages else 0
    return messages.count(b'"role":"assistant"') + messages.count(b'"role": "assistant"') + 1


def opening(messages: bytes) -> bytes:
    """Give what a conversation began with: everything before the first answer, the same in each of its turns."""
    end = messages.find(b'"assistant"', 0, HEAD_BYTES)
    if end >= 0:
        end = messages.rfind(b"{", 0, end)
    return messages[: end if end > 0 else HEAD_BYTES].rstrip(b"], \r\n\t")


def head(messages: bytes, *, system: bytes = b"", tools: bytes = b"") -> tuple[bytes, tuple[str, ...]]:
    """Make the text of a routing key for a request without a session, and name the rules that changed it."""
    begun, hit = normalise.steady(system[:HEAD_BYTES] + opening(messages))
    if not tools:
        return begun, hit
    ordered, moved = normalise.tools(tools)
    return ordered.translate(normalise.SAME) + begun, (*hit, *moved)
