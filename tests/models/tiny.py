"""A language model of 7 MB, made in a third of a second: a bigram model of the text below, as GGUF and as HF folder.

The embedding is one-hot, the output matrix holds log-probabilities; attention and feed-forward run and add zero. At
temperature 0 it writes the same readable words each time and stops by itself. ``python -m tests.models.tiny DIR``.
"""

import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = """A stoker feeds the fire, and the fire drives the engine.
The gateway takes a request and gives it to the engine with the shortest queue.
One engine holds one model, and the model answers word by word.
When the fire is low, the answer is slow, and the client waits.
The keeper counts every token, and writes the count into the book.
If an engine falls, another one takes the load, and the keeper writes that down too.
A long request fills the memory, and a full memory makes the queue grow.
The controller looks at the world, compares it with the plan, and acts.
A good plan says how much memory the model takes before the engine starts.
Nobody asks the engine without a key, and no key is written down in the clear.
The night is quiet when the engines are healthy and the queue is short.
"""
BOS, EOS, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
TEMPLATE = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + (m['content'] or '') + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
VOCABULARY = 512
HEAD = 64
LAYERS = 2
HIDDEN = 256
CONTEXT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiny:
    """Where the two copies lie; the weights are the same."""

    gguf: Path
    folder: Path


def make(folder: Path, *, name: str = "tiny", context: int = CONTEXT, license_name: str = "apache-2.0") -> Tiny:
    """Write ``<name>.gguf`` and ``<name>-hf/``; what is there already is used again."""
    made = Tiny(gguf=folder / f"{name}.gguf", folder=folder / f"{name}-hf")
    if made.gguf.exists() and (made.folder / "model.safetensors").exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    weights = _weights(tokenizer)
    _write_folder(made.folder, weights, tokenizer, context)
    part = made.gguf.with_suffix(".part")
    _write_gguf(part, weights, tokenizer, name=name, context=context, license_name=license_name)
    part.replace(made.gguf)
    return made


def _tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    return made


def _bigrams(tokenizer: Tokenizer) -> np.ndarray:
    """Log-probability of each token after each other one."""
    size = tokenizer.get_vocab_size()
    lines = [tokenizer.encode(line).ids for line in TEXT.splitlines(keepends=True)]
    begin, end = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    newline = tokenizer.encode("\n").ids[-1]
    counts = np.full((size, size), 1e-4)
    for line in lines:
        for here, after in pairwise(line):
            counts[here, after] += 1
        for opening in (newline, begin):  # an answer begins after the header of its turn
            counts[opening, line[0]] += 1
    for stop in {line[-2] for line in lines if line[-1] == newline}:  # half of the sentences are the last one
        counts[stop] *= 0.5
        counts[stop, end] += counts[stop].sum()
    counts[:, [tokenizer.token_to_id(PAD), begin]] = 1e-9
    return np.log(counts / counts.sum(axis=1, keepdims=True))


def _weights(tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    size = tokenizer.get_vocab_size()
    width = VOCABULARY

    def noise(*shape: int) -> np.ndarray:
        return random.normal(0, 0.02, shape).astype(np.float32)

    embedding = np.zeros((size, width), np.float32)
    embedding[np.arange(size), np.arange(size)] = 1.0
    output = np.zeros((size, width), np.float32)
    output[:, :size] = _bigrams(tokenizer).T / np.sqrt(width)  # the norm before it scales a one-hot row by sqrt(width)
    made = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": output,
        "model.norm.weight": np.ones(width, np.float32),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        made |= {f"{prefix}{norm}_layernorm.weight": np.ones(width, np.float32) for norm in ("input", "post_attention")}
        made |= {f"{prefix}self_attn.{part}_proj.weight": noise(width, width) for part in "qkv"}
        made |= {f"{prefix}mlp.{part}_proj.weight": noise(HIDDEN, width) for part in ("gate", "up")}
        made[f"{prefix}self_attn.o_proj.weight"] = np.zeros((width, width), np.float32)
        made[f"{prefix}mlp.down_proj.weight"] = np.zeros((width, HIDDEN), np.float32)
    return {key: value.astype(np.float32 if "norm" in key else np.float16) for key, value in made.items()}


def _write_folder(folder: Path, weights: dict[str, np.ndarray], tokenizer: Tokenizer, context: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    special = {
        f"{name}_token_id": tokenizer.token_to_id(token)
        for name, token in zip(("bos", "eos", "pad"), (BOS, EOS, PAD), strict=True)
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": VOCABULARY,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": VOCABULARY // HEAD,
        "num_key_value_heads": VOCABULARY // HEAD,
        "head_dim": HEAD,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        **special,
    }
    words = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": context,
        "chat_template": TEMPLATE,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps(words, indent=1))
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_gguf(
    path: Path, weights: dict[str, np.ndarray], tokenizer: Tokenizer, *, name: str, context: int, license_name: str
) -> None:
    heads = VOCABULARY // HEAD
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(name)
    writer.add_license(license_name)
    writer.add_context_length(context)
    writer.add_embedding_length(VOCABULARY)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD)
    writer.add_file_type(1)
    _write_tokenizer(writer, tokenizer)

    def rotary(tensor: np.ndarray) -> np.ndarray:
        """llama.cpp interleaves the halves that Hugging Face keeps apart."""
        return tensor.reshape(heads, 2, HEAD // 2, VOCABULARY).swapaxes(1, 2).reshape(VOCABULARY, VOCABULARY)

    for key, tensor in weights.items():
        turned = rotary(tensor) if "q_proj" in key or "k_proj" in key else tensor
        writer.add_tensor(_gguf_name(key), turned)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    described = json.loads(tokenizer.to_str())
    tokens = sorted(described["model"]["vocab"], key=described["model"]["vocab"].__getitem__)
    special = {token["content"] for token in described["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in described["model"]["merges"]]
    )
    writer.add_bos_token_id(tokenizer.token_to_id(BOS))
    writer.add_eos_token_id(tokenizer.token_to_id(EOS))
    writer.add_pad_token_id(tokenizer.token_to_id(PAD))
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(TEMPLATE)


def _gguf_name(key: str) -> str:
    fixed = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
    stem = key.removesuffix(".weight")
    if stem in fixed:
        return f"{fixed[stem]}.weight"
    _, _, layer, *rest = stem.split(".")
    parts = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    return f"blk.{layer}.{parts['.'.join(rest)]}.weight"


if __name__ == "__main__":
    sys.stdout.write(f"{make(Path(sys.argv[1]))}\n")
