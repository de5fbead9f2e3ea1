"""With which settings was an engine started? From the lines in which it repeats its arguments."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Our names, and how vLLM ("non-default args", its config line) and SGLang ("server_args") write them.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "utilization": ("gpu_memory_utilization", "mem_fraction_static"),
    "context": ("max_model_len", "max_seq_len", "context_length"),
    "sequences": ("max_num_seqs", "max_running_requests"),
    "batch_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "tensor": ("tensor_parallel_size", "tp_size"),
    "pipeline": ("pipeline_parallel_size", "pp_size"),
    "data": ("data_parallel_size", "dp_size"),
    "kv_dtype": ("kv_cache_dtype",),
    "quantization": ("quantization",),
    "dtype": ("dtype",),
    "cache_bytes": ("kv_cache_memory_bytes",),
}
_EXPLICIT: Final = re.compile(r"Explicitly set \(([\d.]+)/[\d.]+\) GiB for KV cache")  # vLLM on processors
_SLOTS: Final = re.compile(r"n_slots = (\d+), n_ctx_slot = (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a log tells about the start. 0 and empty: nothing."""

    utilization: float = 0.0
    context: int = 0
    sequences: int = 0
    batch_tokens: int = 0
    tensor: int = 0
    pipeline: int = 0
    data: int = 0
    kv_dtype: str = ""
    quantization: str = ""
    dtype: str = ""
    cache_bytes: float = 0.0  # given, and not what the share leaves


def read(text: str) -> Asked:
    """Read the settings of a start-up log, whichever engine wrote it."""
    found = {name: _value(text, names) for name, names in _NAMES.items()}
    slots = _SLOTS.search(text)
    if slots is not None:
        found |= {"sequences": slots[1], "context": slots[2]}
    given = _EXPLICIT.search(text)
    return Asked(
        utilization=_number(found["utilization"]),
        context=int(_number(found["context"])),
        sequences=int(_number(found["sequences"])),
        batch_tokens=max(0, int(_number(found["batch_tokens"]))),
        tensor=int(_number(found["tensor"])),
        pipeline=int(_number(found["pipeline"])),
        data=int(_number(found["data"])),
        kv_dtype="" if found["kv_dtype"] in ("auto", "None") else found["kv_dtype"],
        quantization="" if found["quantization"] == "None" else found["quantization"],
        dtype=found["dtype"].removeprefix("torch."),
        cache_bytes=float(given[1]) * 2**30 if given else _number(found["cache_bytes"]),
    )


def _value(text: str, names: tuple[str, ...]) -> str:
    for name in names:
        match = re.search(rf"\b{name}['\"]?\s*[:=]\s*['\"]?([\w.-]+)", text)
        if match is not None:
            return match[1]
    return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
