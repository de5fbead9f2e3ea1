"""Measured times as the rows of a file tell them, as work of one rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from stoker.predict import estimate, kv
from stoker.predict.gpu import Gpu
from stoker.predict.roles import Role
from stoker.predict.shape import Attends, Layer, Shape
from stoker.predict.timing.refit import Measured
from stoker.predict.timing.roofline import ENGINES, Work

_BYTES: Final = {"fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125, "bf16": 2.0}
_STATE: Final = (Attends.LINEAR, Attends.STATE)
_DEPLOYMENT: Final = (
    "model_path", "system", "backend", "backend_version", "precision", "tp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_CARD: Final = {"h100_sxm": "H100-SXM", "h200_sxm": "H200-SXM", "b200_sxm": "B200-SXM", "b300_sxm": "B300-SXM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One configuration under a closed loop of ``batch`` requests."""

    shape: Shape
    gpu: Gpu
    engine: str
    dense: str  # precision of dense layers
    sparse: str  # and of experts
    ranks: int
    expert_ranks: int
    spread: bool
    prompt: float
    output: float
    batch: float
    kv_element_bytes: float = 2.0


def work(served: Sequence[Served]) -> Work:
    """Put configurations side by side."""
    rows = [_row(each) for each in served]
    return Work(**{f.name: np.array([row[f.name] for row in rows]) for f in fields(Work)})


def _row(s: Served) -> dict[str, float]:
    shape, gpu, cut = s.shape, s.gpu, kv.Cut(ranks=s.ranks, element_bytes=s.kv_element_bytes)
    dense, expert = _weights(shape)
    active = expert * shape.experts_per_token / max(1, shape.experts)
    windowed = [layer for layer in shape.layers if layer.window and layer.window < s.prompt]
    full = [layer for layer in shape.layers if layer not in windowed]
    states = sum(kv.state_bytes(layer, cut) for layer in shape.layers)
    return {
        "dense_bytes": dense * _BYTES[s.dense] / s.ranks,
        "expert_bytes": expert * _BYTES[s.sparse] / s.expert_ranks,
        "experts": float(max(1, shape.experts)),
        "chosen": float(max(1, shape.experts_per_token)),
        "dense_flops": 2 * dense / s.ranks,
        "expert_flops": 2 * active / s.expert_ranks,
        "pair_flops": sum(_pair(shape, layer, s.prompt) for layer in shape.layers) / s.ranks,
        "cache_bytes": sum(kv.token_bytes(layer, cut) for layer in full),
        "window_bytes": sum(kv.token_bytes(layer, cut) * layer.window for layer in windowed) + 2 * states,
        "layers": float(len(shape.layers)),
        "expert_layers": float(sum(layer.experts for layer in shape.layers)),
        "state_layers": float(shape.count(*_STATE)),
        "hidden": float(shape.hidden),
        "ranks": float(max(s.ranks, s.expert_ranks)),
        "spread": float(s.spread),
        "bandwidth": gpu.bandwidth_gbs * 1e9,
        "dense_peak": _peak(gpu, s.dense),
        "expert_peak": _peak(gpu, s.sparse),
        "attention_peak": gpu.bf16_tflops * 1e12,
        "narrow": float(_peak(gpu, s.sparse if shape.experts else s.dense) > gpu.fp8_tflops * 1e12),
        "link": (gpu.link_gbs or 32.0) * 1e9,
        "prompt": s.prompt,
        "output": s.output,
        "batch": s.batch,
        "engine": float(ENGINES.index(s.engine)),
        "family": float("fp4" in gpu.native),
    }


def _weights(shape: Shape) -> tuple[float, float]:
    """Values of all dense layers that a token meets, and of all experts."""
    found = estimate.parts(shape, element_bytes=1.0).by_role()
    return sum(n for role, n in found.items() if role not in (Role.EXPERTS, Role.EMBEDDING)), found.get(Role.EXPERTS, 0)


def _pair(shape: Shape, layer: Layer, prompt: float) -> float:
    if layer.attends in (*_STATE, Attends.NONE):
        return 0.0
    if layer.attends in (Attends.LATENT, Attends.SPARSE):
        return 2.0 * shape.heads * (128 + layer.rope_dim + 128)
    seen = min(1.0, 2 * layer.window / prompt) if layer.window else 1.0
    return 4.0 * shape.heads * layer.head_dim * seen


def _peak(gpu: Gpu, precision: str) -> float:
    narrow = {"fp8": gpu.fp8_tflops, "fp8_block": gpu.fp8_tflops, "nvfp4": gpu.fp4_tflops, "mxfp4": gpu.fp4_tflops}
    return (narrow.get(precision, 0.0) or gpu.bf16_tflops) * 1e12


def read(table: Sequence[Mapping[str, str]], shapes: Mapping[str, Shape], catalogue: Sequence[Gpu]) -> Measured:
    """Take the rows that one rank group served in whole, up to eight ranks: no attention DP, no P/D split."""
    kept = [row for row in table if _is_plain(row) and row["model_path"].lower() in shapes]
    served = [_served(row, shapes[row["model_path"].lower()], catalogue) for row in kept]
    return Measured(
        work=work(served),
        tpot=np.array([float(row["silicon_tpot_ms"]) / 1e3 for row in kept]),
        ttft=np.array([float(row["silicon_ttft_ms"]) / 1e3 for row in kept]),
        model=tuple(row["model_path"] for row in kept),
        system=tuple(row["system"] for row in kept),
        deployment=tuple(" ".join(row[name] for name in _DEPLOYMENT) for row in kept),
        lengths=tuple(f"{row['isl']} {row['osl']}" for row in kept),
    )


def _is_plain(row: Mapping[str, str]) -> bool:
    if row["mode"] != "agg" or row["attention_dp_size"] not in ("", "1") or row["system"] not in _CARD:
        return False
    return int(row["tp_size"]) <= 8 and int(row["pp_size"] or 1) == 1 and row["backend"] in ENGINES


def _served(row: Mapping[str, str], shape: Shape, catalogue: Sequence[Gpu]) -> Served:
    mixed = "gpt-oss" in row["model_path"]  # only its experts are narrow
    named = next((kind for kind in ("nvfp4", "fp8") if kind in row["model_path"].lower()), "bf16")
    dense = "bf16" if mixed else row["gemm_quant_mode"] or row["precision"] or named
    ranks, whole = int(row["tp_size"]), int(row["moe_ep_size"] or 1)
    return Served(
        shape=shape,
        gpu=next(gpu for gpu in catalogue if gpu.name.startswith(_CARD[row["system"]])),
        engine=row["backend"],
        dense=dense if dense in _BYTES else "nvfp4",
        sparse="mxfp4" if mixed else row["moe_quant_mode"] or dense,
        ranks=ranks,
        expert_ranks=max(ranks, whole * int(row["moe_tp_size"] or 1)) if shape.experts else ranks,
        spread=whole > 1,
        prompt=float(row["isl"]),
        output=float(row["osl"]),
        batch=float(row["batch_size"]),
    )
