"""Which prompts share a beginning? A salted chain of block hashes; bounded, and never any text.

Each hash covers everything from the prompt's start to the end of its block, so two requests share exactly as many
leading hashes as they share leading blocks. The salt stays on the machine: without it nobody can test a guess.
"""

from hashlib import blake2b
from typing import Final

BLOCK_BYTES: Final = 1024
MAX_BLOCKS: Final = 64
_SESSION_HEADERS: Final = dict.fromkeys(
    (
        b"x-claude-code-session-id",
        b"session-id",
        b"thread-id",
        b"x-session-affinity",
        b"x-session-id",
    )
)


def blocks(prompt: bytes, *, salt: bytes) -> tuple[str, ...]:
    """Hash the first blocks of a prompt; a last, incomplete one counts too."""
    if len(prompt) <= BLOCK_BYTES:
        return (blake2b(prompt, digest_size=6, key=salt).hexdigest(),) if prompt else ()
    chain = blake2b(digest_size=6, key=salt)
    view = memoryview(prompt)
    hashes = []
    for start in range(0, min(len(view), BLOCK_BYTES * MAX_BLOCKS), BLOCK_BYTES):
        chain.update(view[start : start + BLOCK_BYTES])
        hashes.append(chain.copy().hexdigest())
    return tuple(hashes)


def session(headers: dict[bytes, bytes], cache_key: str | None, *, salt: bytes) -> str:
    """Hash the first session key that a known client sent, or give the empty string."""
    if not _SESSION_HEADERS.keys().isdisjoint(headers):
        given = next(headers[name] for name in _SESSION_HEADERS if name in headers)
    elif cache_key:
        given = cache_key.encode()
    else:
        return ""
    return blake2b(given, digest_size=8, key=salt).hexdigest()


def turn(messages: bytes) -> int:
    """Count the turns of a conversation: the answers that it already holds, and this one."""
    if b'"assistant"' not in messages:  # a quote inside a text is escaped, so this is a member's value
        return 1 if messages else 0
    return messages.count(b'"role":"assistant"') + messages.count(b'"role": "assistant"') + 1
