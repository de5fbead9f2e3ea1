"""May this model be started on this engine at all?

Asked before a process is started, from headers alone: a start that must fail costs minutes and hides its reason in
a log.

1. The runtime exists here; an image without a container driver is refused, not ignored.
2. The format is one that the engine loads, and the architecture is one that this build of it names.
3. The licence is permissive, or a person has accepted it.
4. The context asked for is within the model's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.engines.base import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is to be started. ``architectures`` answers whether the build names an architecture; absent: unknown."""

    engine: str
    runtime: str
    formats: tuple[str, ...]
    model: Model | None
    context_tokens: int | None = None
    architectures: Mapping[str, bool] = field(default_factory=dict)
    licence: str = "permissive"  # permissive | restricted | unknown
    licence_clause: str = ""
    licence_accepted: bool = False
    refused: str = ""  # what the adapter or the reader of the files said
    refused_action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Yes, or no with the reason and what to do."""

    ok: bool
    reason: str
    message: str = ""
    action: str = ""


def preflight(candidate: Candidate) -> Verdict:
    """Decide, naming the first thing that stands in the way."""
    for check in (_runtime, _refusal, _format, _architecture, _licence, _context):
        verdict = check(candidate)
        if verdict is not None:
            return verdict
    return Verdict(ok=True, reason="Passed", message=_praise(candidate))


def _runtime(candidate: Candidate) -> Verdict | None:
    if candidate.runtime == "container":
        return Verdict(
            ok=False,
            reason="NoContainerDriver",
            message="this machine has no container driver, so an image cannot be run here",
            action="use runtime kind python, command or embedded; images run on the Kubernetes backend",
        )
    if candidate.runtime == "embedded" and candidate.engine not in ("llama.cpp", "simulated"):
        return Verdict(
            ok=False,
            reason="EngineNotInstalled",
            message=f"{candidate.engine} is not embedded in Stoker",
            action=f"`stoker engine add {candidate.engine} --python PATH`, then runtime: {{kind: python, path: PATH}}",
        )
    return None


def _refusal(candidate: Candidate) -> Verdict | None:
    if not candidate.refused:
        return None
    return Verdict(ok=False, reason="ModelRefused", message=candidate.refused, action=candidate.refused_action)


def _format(candidate: Candidate) -> Verdict | None:
    if candidate.model is None or not candidate.formats or candidate.model.format in candidate.formats:
        return None
    wanted = " or ".join(candidate.formats)
    return Verdict(
        ok=False,
        reason="UnsupportedFormat",
        message=f"{candidate.engine} loads {wanted}; {candidate.model.path} is {candidate.model.format or 'unknown'}",
        action="take a GGUF file of the model, or an engine that loads safetensors (vllm, sglang)",
    )


def _architecture(candidate: Candidate) -> Verdict | None:
    model = candidate.model
    if model is None or not model.architecture or candidate.architectures.get(model.architecture, True):
        return None
    return Verdict(
        ok=False,
        reason="UnsupportedArchitecture",
        message=f"this build of {candidate.engine} does not know the architecture '{model.architecture}'",
        action=f"take a newer {candidate.engine}, or another engine",
    )


def _licence(candidate: Candidate) -> Verdict | None:
    if candidate.model is None or candidate.licence == "permissive" or candidate.licence_accepted:
        return None
    clause = f": {candidate.licence_clause}" if candidate.licence_clause else ""
    return Verdict(
        ok=False,
        reason="LicenceNotAccepted",
        message=f"the licence of this model is {candidate.licence}{clause}",
        action="read it; then `stoker up --accept-licence`, or spec.model.acceptLicence: true",
    )


def _context(candidate: Candidate) -> Verdict | None:
    model, asked = candidate.model, candidate.context_tokens
    if model is None or not asked or not model.context_tokens or asked <= model.context_tokens:
        return None
    return Verdict(
        ok=False,
        reason="ContextTooLong",
        message=f"{asked} tokens of context are asked for, and the model was made for {model.context_tokens}",
        action=f"set spec.engine.contextTokens to at most {model.context_tokens}",
    )


def _praise(candidate: Candidate) -> str:
    if candidate.model is None:
        return "the engine brings its own model"
    model = candidate.model
    return (
        f"{model.format} {model.architecture}, context {model.context_tokens or 'unknown'}, licence {candidate.licence}"
    )
