"""Claude Code: environment variables, which its settings file can hold. Names and effects: docs/clients.md."""

from typing import Final

from stoker.base.json import Json
from stoker.checks.clients.base import KEY_VARIABLE, Service, Setup, room

_DEFAULT_TIMEOUT: Final = 600.0
_OWN_OUTPUT_TOKENS: Final = 32_000


class ClaudeCode:
    """The adapter."""

    name = "claude-code"
    dialect = "messages"
    prompt_bytes = 77_636
    home = ("CLAUDE_CONFIG_DIR", ".claude")

    def setup(self, service: Service) -> Setup:
        """Name every model that it might ask for, and the limits that it cannot know of a model that is not its own."""
        env = {
            "ANTHROPIC_BASE_URL": service.origin,
            "ANTHROPIC_MODEL": service.model,
            "ANTHROPIC_DEFAULT_OPUS_MODEL": service.model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": service.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": service.small,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # A line that changes with every version and session at the start of the prompt: no prefix is shared.
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            # Ten by default, over minutes; four are enough for a gateway that is back in seconds.
            "CLAUDE_CODE_MAX_RETRIES": "4",
            **self._limits(service),
        }
        if service.key:
            env["ANTHROPIC_AUTH_TOKEN"] = service.key
        told: dict[str, Json] = dict(env)
        helper: dict[str, Json] = {} if service.key else {"apiKeyHelper": f"printenv {KEY_VARIABLE}"}
        return Setup(
            client=self.name,
            file="settings.json",
            form="json",
            settings={"env": told, **helper},
            env={**env, "ANTHROPIC_AUTH_TOKEN": service.key or f"${KEY_VARIABLE}"},
            secret=bool(service.key),
            notes=(*room(service, self.prompt_bytes), *self._notes(service)),
        )

    @staticmethod
    def _limits(service: Service) -> dict[str, str]:
        limits = {}
        if service.context_tokens:
            # Without it a model that it does not know is taken to have a million tokens: it never compacts in time.
            limits["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(service.context_tokens)
            limits["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(service.context_tokens)
        if service.output_tokens:
            limits["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(min(service.output_tokens, _OWN_OUTPUT_TOKENS))
        if service.silence_seconds > _DEFAULT_TIMEOUT:
            limits["API_TIMEOUT_MS"] = str(int(service.silence_seconds * 1000))
        return limits

    @staticmethod
    def _notes(service: Service) -> tuple[str, ...]:
        if service.key:
            return ()
        return (f"its key comes from {KEY_VARIABLE}: export it before you start Claude Code",)
