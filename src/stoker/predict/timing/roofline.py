"""How long does a token take? By roofline, with efficiencies that were fitted on measured systems.

A step of ``B`` sequences at context ``c``:

``max(memory, compute) + 0.3 · min(memory, compute) + cache + layers + collectives``

* memory: dense weights and the experts that ``B`` tokens touch, ``E (1 - (1 - k / E)^B)``, over the bandwidth
* compute: two operations a weight and token, over the peak of the precision
* cache: ``B · c`` times its bytes a token, over the bandwidth
* layers: launching them, with more for experts and state layers; and what each sequence adds
* collectives: two all-reduces a layer, each a latency and its bytes over the link

Prefill is the same for the prompt's tokens, with attention over pairs of tokens. In a closed loop of ``B`` requests:
``TPOT = step + phi · prefill · (B - 1) / output`` and ``TTFT = prefill + base + step / 2 + gamma · B^delta · prefill``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

ENGINES: Final = ("vllm", "sglang", "trtllm")
FAMILIES: Final = ("hopper", "blackwell")

# Where the fit begins: physics, and the first hand-made fit of these rows.
START: Final[dict[str, float]] = {
    "weights": 0.9,
    "experts": 0.64,
    "cache": 0.8,
    "mfu": 0.5,
    "mfu experts": 0.35,
    "mfu fp4": 0.6,
    "prefill attention": 0.25,
    "state seconds": 2e-5,
    "sequence seconds": 1e-5,
    "link": 0.6,
    "imbalance": 1.2,
    "delta": 0.9,
    **{f"layer {family}": 4e-5 for family in FAMILIES},
    **{f"expert layer {engine}": 2e-5 for engine in ENGINES},
    **{f"engine {engine}": 1.0 for engine in ENGINES},
    **{f"latency {engine}": 8e-6 for engine in ENGINES},
    **{f"phi {engine}": 0.8 for engine in ENGINES},
    **{f"base {engine}": 0.05 for engine in ENGINES},
    **{f"gamma {engine}": 0.1 for engine in ENGINES},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a rank must do, one element a configuration. Bytes and operations are of one rank."""

    dense_bytes: Array
    expert_bytes: Array
    experts: Array  # 1 where there are none
    chosen: Array  # experts a token
    dense_flops: Array  # a token
    expert_flops: Array
    pair_flops: Array  # of attention, for a pair of tokens
    cache_bytes: Array  # a token
    window_bytes: Array  # of layers whose window is full, a sequence
    layers: Array
    expert_layers: Array
    state_layers: Array
    hidden: Array
    ranks: Array
    spread: Array  # 1 where whole experts lie on ranks
    bandwidth: Array
    dense_peak: Array
    expert_peak: Array
    attention_peak: Array
    narrow: Array  # 1 where arithmetic is in four bits
    link: Array
    prompt: Array
    output: Array
    batch: Array
    engine: Array  # index into ENGINES
    family: Array

    def take(self, rows: Array | Sequence[int]) -> "Work":
        """Some of the configurations."""
        chosen = np.asarray(rows)
        return Work(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds, one element a configuration."""

    step: Array
    prefill: Array
    tpot: Array
    ttft: Array
    memory: Array
    compute: Array
    cache: Array
    rest: Array


def times(work: Work, p: dict[str, float]) -> Times:
    """Predict every configuration with the coefficients ``p``."""
    context = work.prompt + work.output / 2
    memory, compute, shared = _linear(work, p, work.batch)
    cache = work.batch * (context * work.cache_bytes + work.window_bytes) / (work.bandwidth * p["cache"])
    rest = shared + work.batch * p["sequence seconds"]
    step = np.maximum(memory, compute) + 0.3 * np.minimum(memory, compute) + cache + rest
    prefill = _prefill(work, p)
    phi, base, gamma = (_by_engine(work, p, name) for name in ("phi", "base", "gamma"))
    tpot = step + phi * prefill * (work.batch - 1) / work.output
    base = base * work.layers / 60
    ttft = prefill + base + step / 2 + gamma * work.batch ** p["delta"] * prefill
    return Times(
        step=step, prefill=prefill, tpot=tpot, ttft=ttft, memory=memory, compute=compute, cache=cache, rest=rest
    )


def _prefill(work: Work, p: dict[str, float]) -> Array:
    memory, compute, pairs, rest = prefill_parts(work, p)
    return np.maximum(memory, compute) + 0.3 * np.minimum(memory, compute) + pairs + rest


def prefill_parts(work: Work, p: dict[str, float]) -> tuple[Array, Array, Array, Array]:
    """Weight reads, arithmetic of the linear layers, attention over pairs of tokens, and launches with collectives."""
    memory, compute, rest = _linear(work, p, work.prompt)
    pairs = work.prompt**2 / 2 * work.pair_flops / (work.attention_peak * p["prefill attention"])
    return memory, compute, pairs, rest


def _linear(work: Work, p: dict[str, float], tokens: Array) -> tuple[Array, Array, Array]:
    """Memory, compute and everything else of the linear layers for so many tokens."""
    touched = 1 - (1 - work.chosen / work.experts) ** tokens
    memory = work.dense_bytes / p["weights"] + work.expert_bytes * touched / p["experts"]
    slower = np.where(work.narrow > 0, p["mfu fp4"], 1.0)
    uneven = np.where(work.spread > 0, p["imbalance"], 1.0)
    dense = work.dense_flops / (work.dense_peak * p["mfu"])
    sparse = work.expert_flops * uneven / (work.expert_peak * p["mfu experts"])
    launch = np.take([p[f"layer {family}"] for family in FAMILIES], work.family.astype(int))
    layers = work.layers * launch * _by_engine(work, p, "engine") + work.state_layers * p["state seconds"]
    layers = layers + work.expert_layers * _by_engine(work, p, "expert layer")
    moved = tokens * work.hidden * 4 * (work.ranks - 1) / work.ranks / (work.link * p["link"])
    sent = np.where(work.ranks > 1, 2 * work.layers * (_by_engine(work, p, "latency") + moved), 0.0)
    return memory / work.bandwidth, tokens * (dense + sparse) / slower, layers + sent


def _by_engine(work: Work, p: dict[str, float], name: str) -> Array:
    return np.take([p[f"{name} {engine}"] for engine in ENGINES], work.engine.astype(int))
