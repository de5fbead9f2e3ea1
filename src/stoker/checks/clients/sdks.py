"""The vendors' SDKs: two variables each, in the shell or in a ``.env`` file of the project."""

from dataclasses import dataclass

from stoker.base.json import Json
from stoker.checks.clients.base import PLACEHOLDER, Service, Setup


@dataclass(frozen=True, slots=True)
class Sdk:
    """The adapter of either."""

    name: str
    dialect: str
    prefix: str
    path: str
    snippet: str
    prompt_bytes: int = 0
    home: tuple[str, str] = ("", "")  # the folder in which the command runs: a project

    def setup(self, service: Service) -> Setup:
        """Name the base URL and the key, and show a call."""
        env = {
            f"{self.prefix}_BASE_URL": f"{service.origin}{self.path}",
            f"{self.prefix}_API_KEY": service.key or PLACEHOLDER,
        }
        written: dict[str, Json] = dict(env)
        if not service.key:
            written.pop(f"{self.prefix}_API_KEY")
        notes = [line.format(model=service.model, seconds=int(service.silence_seconds)) for line in self.notes(service)]
        return Setup(
            client=self.name,
            file=".env",
            form="env",
            settings=written,
            env=env,
            secret=bool(service.key),
            notes=(self.snippet.format(model=service.model), *notes),
        )

    @staticmethod
    def notes(service: Service) -> tuple[str, ...]:
        """Say what its own defaults are not enough for."""
        long = "it gives up after 600 s without a byte: pass timeout={seconds} to the client where answers think longer"
        return (long,) if service.silence_seconds > 660 else ()


OPENAI = Sdk(
    "openai",
    "chat",
    "OPENAI",
    "/v1",
    'OpenAI().chat.completions.create(model="{model}", messages=[{{"role": "user", "content": "Hello"}}])',
)
ANTHROPIC = Sdk(
    "anthropic",
    "messages",
    "ANTHROPIC",
    "",
    'Anthropic().messages.create(model="{model}", max_tokens=256, messages=[{{"role": "user", "content": "Hello"}}])',
)
