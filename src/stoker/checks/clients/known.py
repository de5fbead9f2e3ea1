"""Which clients are known? Raises Invalid with the nearest name for another one."""

from collections.abc import Mapping
from typing import Final

from stoker.base.errors import Fault, Invalid, nearest
from stoker.checks.clients.base import Client
from stoker.checks.clients.claude_code import ClaudeCode
from stoker.checks.clients.codex import Codex
from stoker.checks.clients.opencode import OpenCode
from stoker.checks.clients.sdks import ANTHROPIC, OPENAI

CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client for client in (ClaudeCode(), Codex(), OpenCode(), OPENAI, ANTHROPIC)
}


def known(name: str) -> Client:
    """Find a client by its name."""
    if name in CLIENTS:
        return CLIENTS[name]
    names = list(CLIENTS)
    hint = nearest(name, names) or f"known: {', '.join(names)}"
    raise Invalid(Fault(message=f"no client is called '{name}'", field="CLIENT", hint=hint))
