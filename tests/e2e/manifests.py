"""Manifests as a user writes them, for the tests that apply them."""

from collections.abc import Mapping
from pathlib import Path

import yaml


def document(kind: str, name: str, spec: Mapping[str, object], **labels: str) -> dict[str, object]:
    metadata: dict[str, object] = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "stoker.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def text(*documents: Mapping[str, object]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def llama(name: str, model: Path, **changes: object) -> dict[str, object]:
    """A deployment on the embedded llama.cpp; ``engine`` adds to its block."""
    engine = {"name": "llama.cpp", "contextTokens": 512, "maxSequences": 2, **changes.pop("engine", {})}  # type: ignore[dict-item]
    return document("ModelDeployment", name, {"model": {"path": str(model)}, "engine": engine, **changes})


def scripted(name: str, **changes: object) -> dict[str, object]:
    """A deployment on the scripted engine: up in a moment, whatever the machine."""
    engine = {"name": "simulated", **changes.pop("engine", {})}  # type: ignore[dict-item]
    return document("ModelDeployment", name, {"engine": engine, **changes})


def service(name: str, deployment: str = "", **changes: object) -> dict[str, object]:
    """A service that the gateway below exposes."""
    labels = {"stoker.dev/deployment": deployment or name}
    spec = {"endpoints": [{"selector": {"matchLabels": labels}}], **changes}
    return document("ModelService", name, spec, exposed="true")


def gateway(**changes: object) -> dict[str, object]:
    return document("InferenceGateway", "default", {"serviceSelector": {"matchLabels": {"exposed": "true"}}, **changes})
