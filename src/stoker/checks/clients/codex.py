"""Codex: a TOML file with a provider of its own; it speaks responses and nothing else."""

from stoker.base.json import Json
from stoker.checks.clients.base import KEY_VARIABLE, PLACEHOLDER, Service, Setup, room


class Codex:
    """The adapter."""

    name = "codex"
    dialect = "responses"
    prompt_bytes = 41_220
    home = ("CODEX_HOME", ".codex")

    def setup(self, service: Service) -> Setup:
        """Add a provider and choose it."""
        provider: dict[str, Json] = {
            "name": "Stoker",
            "base_url": f"{service.origin}/v1",
            "env_key": KEY_VARIABLE,
            "wire_api": "responses",
            # The gateway repeats what can be repeated; six times five attempts of the client only add load.
            "request_max_retries": 2,
            "stream_max_retries": 2,
        }
        if service.silence_seconds:
            provider["stream_idle_timeout_ms"] = int(max(service.silence_seconds, 300.0) * 1000)
        settings: dict[str, Json] = {"model": service.model, "model_provider": "stoker"}
        if service.context_tokens:
            settings["model_context_window"] = service.context_tokens
        notes = [f"its key comes from {KEY_VARIABLE}: export {KEY_VARIABLE}={service.key or PLACEHOLDER}"]
        return Setup(
            client=self.name,
            file="config.toml",
            form="toml",
            settings={**settings, "model_providers": {"stoker": provider}},
            env={KEY_VARIABLE: service.key or PLACEHOLDER},
            notes=(*room(service, self.prompt_bytes), *notes),
        )
