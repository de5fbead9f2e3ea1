"""A model's parts from its headers: in a folder, in a GGUF file, on a hub by ranges; and what is damaged."""

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drivers.standin_hub import Hub
from tests.models import tiny

from stoker.base.errors import Driver, Invalid
from stoker.drivers import weights
from stoker.drivers.weights import remote
from stoker.predict.roles import Role

LAYERS, EXPERTS = 48, 64


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tiny.Tiny:
    return tiny.make(tmp_path_factory.mktemp("models"))


@pytest.fixture
def hub(made: tiny.Tiny) -> Iterator[Hub]:
    found = Hub({path.name: path.read_bytes() for path in made.folder.iterdir() if path.is_file()})
    yield found
    found.close()


def test_a_folder_and_its_gguf_have_the_same_shape(made: tiny.Tiny) -> None:
    folder, gguf = weights.survey(made.folder), weights.survey(made.gguf)

    assert folder.shape.layers == gguf.shape.layers
    assert (folder.shape.hidden, folder.shape.heads) == (gguf.shape.hidden, gguf.shape.heads)
    assert (folder.shape.vocab, folder.shape.intermediate) == (gguf.shape.vocab, gguf.shape.intermediate)
    assert set(folder.parts.by_role()) == set(gguf.parts.by_role())
    assert folder.parts.total_bytes == weights.read(made.folder).weight_bytes
    assert gguf.parts.total_bytes == weights.read(made.gguf).weight_bytes
    assert folder.parts.unknown == gguf.parts.unknown == ()


def test_a_hub_is_asked_at_most_twice_a_shard(made: tiny.Tiny, hub: Hub) -> None:
    here = weights.survey(made.folder)
    found = remote.survey("owner/model", endpoint=hub.endpoint)
    shards = [name for name in hub.files if name.endswith(".safetensors")]

    assert (found.parts.total_bytes, found.shape) == (here.parts.total_bytes, here.shape)
    assert all(1 <= len(hub.fetched(name)) <= 2 for name in shards)
    assert found.requests == len(hub.asked)


def test_a_long_header_takes_the_second_request_and_no_weights(hub: Hub) -> None:
    tensors = {f"model.layers.0.mlp.experts.{i}.up_proj.weight": (i * 1000, 1000) for i in range(4000)}
    header = json.dumps(
        {name: {"dtype": "U8", "shape": [n], "data_offsets": [at, at + n]} for name, (at, n) in tensors.items()}
    ).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(4_000_000)
    name = next(name for name in hub.files if name.endswith(".safetensors"))
    hub.files = {each: body for each, body in hub.files.items() if not each.endswith((".safetensors", "index.json"))}
    hub.files[name] = data
    found = remote.survey("owner/model", endpoint=hub.endpoint)

    assert found.parts.by_role() == {Role.EXPERTS: 4_000_000}
    assert hub.fetched(name) == ["bytes=0-131071", f"bytes=131072-{8 + len(header) - 1}"]


def test_a_gguf_on_a_hub_is_read_from_its_beginning(made: tiny.Tiny, hub: Hub) -> None:
    hub.files = {"tiny.gguf": made.gguf.read_bytes()}
    found = remote.survey("owner/model", endpoint=hub.endpoint)

    assert found.shape == weights.survey(made.gguf).shape
    assert len(hub.fetched("tiny.gguf")) == 1


def test_a_hub_that_refuses_is_told(hub: Hub) -> None:
    hub.refuse["config.json"] = 403
    with pytest.raises(Driver, match="may not read"):
        remote.survey("owner/model", endpoint=hub.endpoint)


def checkpoint(folder: Path, *, size: int) -> None:
    """A mixture of experts in four bits with scales, the rest in BF16, in sparse files: headers and no data."""
    hidden, width = 4096, 1536
    folder.mkdir()
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_hidden_layers": LAYERS,
        "hidden_size": hidden,
        "intermediate_size": 12288,
        "moe_intermediate_size": width,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 8,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {
        "model.embed_tokens.weight": ("BF16", 2 * 151936 * hidden),
        "lm_head.weight": ("BF16", 2 * 151936 * hidden),
    }
    for i in range(LAYERS):
        for name, n in (("q_proj", 64), ("k_proj", 4), ("v_proj", 4), ("o_proj", 64)):
            sizes[f"model.layers.{i}.self_attn.{name}.weight"] = ("BF16", 2 * n * 128 * hidden)
    left = size - sum(n for _, n in sizes.values())
    packed = left * 8 // 9  # sixteen values of four bits share one scale of eight
    for i in range(LAYERS):
        sizes[f"model.layers.{i}.mlp.experts.0.up_proj.weight"] = ("U8", packed // LAYERS)
        sizes[f"model.layers.{i}.mlp.experts.0.up_proj.weight_scale"] = ("F8_E4M3", (left - packed) // LAYERS)
    at, entries = 0, {}
    for name, (dtype, n) in sizes.items():
        entries[name] = {"dtype": dtype, "shape": [n], "data_offsets": [at, at + n]}
        at += n
    header = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + at)


def test_an_estimate_of_315_gb_is_really_177_7_gb(tmp_path: Path) -> None:
    checkpoint(tmp_path / "m", size=177_700_000_000)
    found = weights.survey(tmp_path / "m")
    stored = found.parts.by_dtype()
    four_bit = stored["U8"] * 2  # values
    naive = four_bit + stored["BF16"] / 2  # a byte for each of the model's parameters

    assert naive == pytest.approx(315e9, rel=0.05)
    assert found.parts.total_bytes == pytest.approx(177.7e9, rel=1e-6)
    assert found.parts.by_role()[Role.EXPERTS] > 0.9 * found.parts.total_bytes
    assert found.quantization == "modelopt NVFP4"


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        pytest.param([8, 0], "negative size", id="ends before it begins"),
        pytest.param([0, 10**9], "speaks of", id="beyond the file"),
    ],
)
def test_sizes_that_cannot_be_are_refused(made: tiny.Tiny, tmp_path: Path, offsets: list[int], words: str) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "m"))
    header = json.dumps({"x": {"dtype": "BF16", "shape": [4], "data_offsets": offsets}}).encode()
    for file in folder.glob("*.safetensors"):
        file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    (folder / weights.INDEX).unlink(missing_ok=True)

    with pytest.raises(Invalid, match=words):
        weights.survey(folder)


def test_a_config_without_layers_is_refused(made: tiny.Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made.folder, tmp_path / "m"))
    (folder / "config.json").write_text('{"model_type": "new"}')

    with pytest.raises(Invalid, match="how many layers"):
        weights.survey(folder)
