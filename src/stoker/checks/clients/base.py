"""What a client is told about a service, and the form in which it wants to be told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from stoker.base.json import JsonObject

KEY_VARIABLE: Final = "STOKER_API_KEY"  # where a client finds its key when it is not to be written into a file
PLACEHOLDER: Final = "YOUR_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service as a client sees it. Zero: not known."""

    origin: str  # http://127.0.0.1:8080, without a path
    model: str
    auxiliary: str = ""  # for titles, summaries and other small things; empty: the same
    key: str = ""  # empty: the client reads it from the environment
    context_tokens: int = 0
    output_tokens: int = 0
    first_byte_seconds: float = 0.0  # how long the gateway lets an engine think before its first token

    @property
    def small(self) -> str:
        """The model for small things."""
        return self.auxiliary or self.model

    @property
    def silence_seconds(self) -> float:
        """How long a client must bear silence: as long as the gateway does, and a little more."""
        return self.first_byte_seconds + 60 if self.first_byte_seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What to write where. ``settings`` go into the file; ``env`` does the same for one shell."""

    client: str
    file: str  # relative to ``home``
    form: Literal["json", "toml", "env"]
    settings: JsonObject
    env: Mapping[str, str] = field(default_factory=dict)
    secret: bool = False  # a key is in the settings
    notes: tuple[str, ...] = ()


class Client(Protocol):
    """One known client."""

    @property
    def name(self) -> str:
        """How the command line calls it."""

    @property
    def dialect(self) -> str:
        """The dialect that it speaks."""

    @property
    def prompt_bytes(self) -> int:
        """The size of its first request, before anybody has said anything."""

    @property
    def home(self) -> tuple[str, str]:
        """The variable that moves its folder of settings, and where that is without it, below the user's home."""

    def setup(self, service: Service) -> Setup:
        """Write its settings for a service."""


def room(service: Service, prompt_bytes: int) -> tuple[str, ...]:
    """Warn when a client's own prompt and an answer do not fit into the context."""
    need = prompt_bytes // 4 + service.output_tokens
    if not service.context_tokens or need <= service.context_tokens:
        return ()
    note = (
        f"the context of {service.context_tokens} tokens is too small: the client's own prompt has about "
        f"{prompt_bytes // 4}, an answer up to {service.output_tokens}; raise spec.engine.contextTokens"
    )
    return (note,)
