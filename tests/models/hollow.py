"""Checkpoints of real sizes without their data: true headers over sparse files, for what reads headers only."""

import json
import struct
from pathlib import Path


def llama(
    folder: Path, *, layers: int, hidden: int, intermediate: int, kv_heads: int = 8, context: int = 131072
) -> Path:
    """A Llama in BF16: heads of 128, a vocabulary of 128256, nothing tied."""
    folder.mkdir(parents=True, exist_ok=True)
    heads, vocab = hidden // 128, 128256
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": 128,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden),
              "model.norm.weight": (hidden,)}  # fmt: skip
    for i in range(layers):
        place = f"model.layers.{i}"
        shapes |= {f"{place}.self_attn.{n}_proj.weight": (hidden, hidden) for n in ("q", "o")}
        shapes |= {f"{place}.self_attn.{n}_proj.weight": (kv_heads * 128, hidden) for n in ("k", "v")}
        shapes |= {f"{place}.mlp.{n}_proj.weight": (intermediate, hidden) for n in ("gate", "up")}
        shapes[f"{place}.mlp.down_proj.weight"] = (hidden, intermediate)
        shapes |= {f"{place}.{n}_layernorm.weight": (hidden,) for n in ("input", "post_attention")}
    write(folder / "model.safetensors", shapes)
    return folder


def write(path: Path, shapes: dict[str, tuple[int, ...]], *, dtype: str = "BF16", width: int = 2) -> None:
    """Write a safetensors file whose data is a hole."""
    at, entries = 0, {}
    for name, shape in shapes.items():
        size = width
        for edge in shape:
            size *= edge
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + at)


def llama_8b(folder: Path) -> Path:
    """Llama 3.1 8B."""
    return llama(folder / "Llama-8B", layers=32, hidden=4096, intermediate=14336)


def llama_70b(folder: Path) -> Path:
    """Llama 3.1 70B."""
    return llama(folder / "Llama-70B", layers=80, hidden=8192, intermediate=28672)
