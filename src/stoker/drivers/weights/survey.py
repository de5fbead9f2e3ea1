"""Everything that a plan needs of a model: its shape, and its tensors by role. Headers only, nothing is loaded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.base.json import JsonObject
from stoker.drivers.weights import files, gguf
from stoker.predict.gguf import from_gguf
from stoker.predict.roles import Parts, Tensor, tally
from stoker.predict.shape import Shape, from_config

# What in a chat template tells which parser an engine needs for what the model writes.
_MARKS: Final = (
    ("tools: hermes", r"<tool_call>\s*(\\n)?\s*\{|<tool_call>"),
    ("tools: llama3_json", r"<\|python_tag\|>|Environment: ipython"),
    ("tools: mistral", r"\[TOOL_CALLS\]"),
    ("tools: deepseek", "tool\u2581calls\u2581begin|\uff5cDSML\uff5c"),
    ("tools: kimi_k2", r"<\|tool_calls_section_begin\|>"),
    ("tools: harmony", r"<\|channel\|>"),
    ("reasoning: think tags", r"<think>"),
    ("reasoning: harmony", r"<\|channel\|>"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One model as its headers tell it. ``quantization``: the checkpoint's own, empty for none."""

    name: str
    format: str
    shape: Shape
    parts: Parts
    files: int
    file_bytes: int
    dtype: str = ""
    quantization: str = ""
    licence: str = ""
    parsers: tuple[str, ...] = ()
    chat_template: bool = False
    requests: int = 0  # asked of a hub


def survey(path: Path) -> Survey:
    """Read a .gguf file or a checkpoint folder; raises Invalid with what is wrong."""
    found = files.headers(path)
    described = found.weights
    if described.format == "gguf":
        return from_headers(described, found.parts)
    config = decode((path / "config.json").read_bytes(), where=str(path / "config.json"))
    return build(described.name or path.name, config, found.tensors, described=described)


def build(name: str, config: JsonObject, tensors: Sequence[Tensor], *, described: files.Weights) -> Survey:
    """Put a survey together from a config and the tensors of all shards."""
    shape = from_config(config)
    if not shape.layers or not shape.hidden:
        hint = "it needs num_hidden_layers and hidden_size, under one of their usual names"
        raise Invalid(Fault(message="the config does not say how many layers there are", file=name, hint=hint))
    return Survey(
        name=name,
        format="safetensors",
        shape=shape,
        parts=tally(tensors, shape),
        files=len(described.files),
        file_bytes=described.weight_bytes,
        dtype=_dtype(config),
        quantization=_quantization(config),
        licence=described.licence_title or described.licence,
        parsers=parsers(described.chat_template),
        chat_template=bool(described.chat_template),
    )


def decode(data: bytes, *, where: str) -> JsonObject:
    """Read a config as it is."""
    try:
        return msgspec.json.decode(data, type=JsonObject)
    except msgspec.MsgspecError as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=where)) from error


def parsers(template: str) -> tuple[str, ...]:
    """Name the parsers that a chat template points to; a hint, for the engine's own names differ."""
    return tuple(name for name, mark in _MARKS if template and re.search(mark, template))


def from_headers(described: files.Weights, headers: Sequence[gguf.Header]) -> Survey:
    """Put a survey together from the headers of a GGUF model's files."""
    tensors = [tensor for header in headers for tensor in header.tensors]
    shape = from_gguf(headers[0].keys, headers[0].arrays, tensors)
    parts = tally(tensors, shape)
    by_dtype = parts.by_dtype()
    return Survey(
        name=described.name or Path(described.path).stem,
        format="gguf",
        shape=shape,
        parts=parts,
        files=len(headers),
        file_bytes=described.weight_bytes,
        dtype=max(by_dtype, key=lambda name: by_dtype[name], default=""),
        quantization="gguf",
        licence=described.licence_title or described.licence,
        parsers=parsers(described.chat_template),
        chat_template=bool(described.chat_template),
    )


def _dtype(config: JsonObject) -> str:
    for place in (config, config.get("text_config")):
        if isinstance(place, dict):
            found = place.get("dtype") or place.get("torch_dtype")
            if isinstance(found, str):
                return found
    return ""


def _quantization(config: JsonObject) -> str:
    for place in (config, config.get("text_config")):
        told = place.get("quantization_config") if isinstance(place, dict) else None
        if isinstance(told, dict):
            kind = told.get("quant_method") or told.get("quant_algo") or "quantized"
            form = told.get("format") or told.get("quant_algo") or told.get("fmt") or ""
            return f"{kind} {form}".strip() if form != kind else str(kind)
    return ""
