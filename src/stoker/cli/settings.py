"""The settings of a Stoker on this machine: flags, then the environment, then defaults. Read here and nowhere else."""

import os
from dataclasses import dataclass
from pathlib import Path

from stoker.base.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What every command needs to know."""

    layout: Layout
    namespace: str = "default"
    hub_endpoint: str = ""
    actor: str = ""


def settings(state_dir: Path | None = None, namespace: str = "") -> Settings:
    """Read the settings: ``STOKER_STATE_DIR``, ``STOKER_NAMESPACE``, ``HF_ENDPOINT``."""
    root = state_dir or Path(os.environ.get("STOKER_STATE_DIR") or Path.home() / ".stoker")
    return Settings(
        layout=Layout(root.expanduser().absolute()),
        namespace=namespace or os.environ.get("STOKER_NAMESPACE", "default"),
        hub_endpoint=os.environ.get("HF_ENDPOINT", ""),
        actor=os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}",
    )


def hub_token() -> str:
    """Read the token for a model hub from the environment; empty when there is none."""
    return os.environ.get("HF_TOKEN", "")


def client_key() -> str:
    """Read a caller's key for a gateway from the environment; empty when there is none."""
    return os.environ.get("STOKER_API_KEY", "")


def client_folder(variable: str, below_home: str) -> Path:
    """Find the folder of a client's settings: where its own variable says, else below the user's home."""
    moved = os.environ.get(variable) if variable else None
    return Path(moved).expanduser() if moved else Path.home() / below_home
