"""A search's choice as manifests that `stoker apply` takes: deployments, the service before them, and its use case."""

import re
from math import ceil

import yaml

from stoker.base.json import Json, JsonObject
from stoker.cli.plan.wish import Wish
from stoker.decide.goodput.search import Option, settled
from stoker.spec.meta import API_VERSION

_MOST_REPLICAS = 10  # of one deployment
_LEAST_CAP = 1024
_FLAGS = {"vllm": ("--data-parallel-size", "--enable-expert-parallel"), "sglang": ("--dp-size", "--ep-size")}


def text(option: Option, wish: Wish, *, model: JsonObject, python: str, day: str) -> str:
    """Write the manifests with a head that says what they are for."""
    proof = option.proof
    name = _name(option.candidate.variant.name)
    deployments = _deployments(option, name, model=model, python=python)
    documents = [*deployments, _case(wish, name), _service(wish, name, count=len(deployments))]
    said = [
        f"# Planned on {day} for {wish.wanted.in_flight:.1f} requests in flight of {wish.wanted.profile.name}.",
        f"# {option.replicas} x {option.candidate.label}",
    ]
    if proof is not None:
        ttft, pace = proof.visible_ttft.p90, 1 / max(1e-9, proof.tpot.p90)
        said.append(f"# Simulated: visible TTFT p90 {ttft:.2f} s, {pace:.0f} tokens a second for each user.")
    if option.extrapolated:
        said.append(f"# Extrapolated beyond the measured rows: {', '.join(option.extrapolated)}.")
    return "\n".join(said) + "\n" + yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


def output_cap(wish: Wish) -> int:
    """The cap on every answer: what nearly all of the traffic stays below, in a power of two."""
    longest = max(1, wish.wanted.mix.longest - int(wish.wanted.mix.prompt_p90))
    cap: int = _LEAST_CAP
    while cap < min(longest, 8 * wish.wanted.mix.output):
        cap *= 2
    context = wish.context_tokens
    return min(cap, max(256, context // 2)) if context else cap


def _deployments(option: Option, name: str, *, model: JsonObject, python: str) -> list[JsonObject]:
    parts = ceil(option.replicas / _MOST_REPLICAS)
    found: list[JsonObject] = []
    for part in range(parts):
        count = option.replicas // parts + (part < option.replicas % parts)
        spec: JsonObject = {"replicas": count, "model": model}
        if option.candidate.plan.ask.engine != "llama.cpp":
            spec["runtime"] = {"kind": "python", "path": python}
        spec["engine"] = _engine(option)
        spec["resources"] = {"devices": [{"name": "gpu", "count": option.candidate.plan.ask.split.ranks}]}
        found.append(_document("ModelDeployment", _part(name, part, parts), spec))
    return found


def _engine(option: Option) -> JsonObject:
    plan = settled(option)
    ask, split = plan.ask, plan.ask.split
    sequences = plan.long_run.sequences if plan.long_run else plan.load.sequences
    share = plan.long_run.utilization if plan.long_run else plan.load.utilization
    block: JsonObject = {"name": ask.engine}
    if ask.version:
        block["version"] = ask.version
    block |= {
        "memoryFraction": share,
        "maxSequences": sequences,
        "contextTokens": ask.context_tokens,
        "prefixCache": True,
        "chunkTokens": plan.load.batch_tokens,
    }
    if split.tensor > 1:
        block["tensorParallel"] = split.tensor
    if split.pipeline > 1:
        block["pipelineParallel"] = split.pipeline
    if split.quantize_to_bytes:
        block["quantization"] = "fp8"
    if ask.kv_element_bytes == 1:
        block["kvDtype"] = "fp8" if ask.engine == "vllm" else "fp8_e4m3"
    extra = _extra(option)
    return block | ({"extraArgs": extra} if extra else {})


def _extra(option: Option) -> list[Json]:
    """What the typed block has no field for."""
    split, engine = option.candidate.plan.ask.split, option.candidate.plan.ask.engine
    data, expert = _FLAGS.get(engine, ("", ""))
    found: list[Json] = [f"{data}={split.data}"] if split.data > 1 and data else []
    if split.expert and expert:
        found.append(expert if engine == "vllm" else f"{expert}={split.tensor * split.data}")
    return found


def _case(wish: Wish, name: str) -> JsonObject:
    slo = wish.wanted.slo
    bar: JsonObject = {
        "visibleTtftP90Seconds": slo.visible_ttft_p90_seconds,
        "tokensPerSecondPerUser": round(1 / slo.tpot_p90_seconds, 3),
        "errorRate": slo.error_rate,
    }
    preset = wish.wanted.profile.preset
    return _document("UseCase", name, {"preset": preset, "contextTokens": wish.context_tokens or 8192, "bar": bar})


def _part(name: str, part: int, parts: int) -> str:
    return name if parts == 1 else f"{name}-{part + 1}"


def _service(wish: Wish, name: str, *, count: int) -> JsonObject:
    spec: JsonObject = {
        "useCaseRef": {"name": name},
        "endpoints": [
            {"selector": {"matchLabels": {"stoker.dev/deployment": _part(name, part, count)}}} for part in range(count)
        ],
        "limits": {"maxOutputTokens": output_cap(wish)},
    }
    return _document("ModelService", name, spec, labels={"stoker.dev/exposed": "true"})


def _document(kind: str, name: str, spec: JsonObject, *, labels: JsonObject | None = None) -> JsonObject:
    metadata: JsonObject = {"name": name}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata | ({"labels": labels} if labels else {}),
            "spec": spec}  # fmt: skip


def _name(model: str) -> str:
    """A resource's name from a model's."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.rsplit("/", maxsplit=1)[-1].lower()).strip("-")
    return plain[:50].rstrip("-") or "model"
