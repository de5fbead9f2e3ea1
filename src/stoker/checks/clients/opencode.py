"""Opencode: a JSON file with a provider of the OpenAI-compatible kind; it speaks chat."""

from stoker.base.json import Json
from stoker.checks.clients.base import KEY_VARIABLE, Service, Setup, room


class OpenCode:
    """The adapter."""

    name = "opencode"
    dialect = "chat"
    prompt_bytes = 31_045
    home = ("", ".config/opencode")

    def setup(self, service: Service) -> Setup:
        """Add a provider with its models and their limits, and choose it."""
        limit: dict[str, Json] = {}
        if service.context_tokens and service.output_tokens:
            limit = {"limit": {"context": service.context_tokens, "output": service.output_tokens}}
        models: dict[str, Json] = {name: {"name": name, **limit} for name in (service.model, service.small)}
        options: dict[str, Json] = {
            "baseURL": f"{service.origin}/v1",
            "apiKey": service.key or f"{{env:{KEY_VARIABLE}}}",
        }
        provider: dict[str, Json] = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stoker",
            "options": options,
            "models": models,
        }
        notes = () if service.key else (f"its key comes from {KEY_VARIABLE}: export it before you start opencode",)
        return Setup(
            client=self.name,
            file="opencode.json",
            form="json",
            settings={
                "$schema": "https://opencode.ai/config.json",
                "model": f"stoker/{service.model}",
                "small_model": f"stoker/{service.small}",
                "provider": {"stoker": provider},
            },
            env={} if service.key else {KEY_VARIABLE: "YOUR_KEY"},
            secret=bool(service.key),
            notes=(*room(service, self.prompt_bytes), *notes),
        )
