"""Headers are read as they are; what is cut, missing, a pickle or remote code is refused with the reason."""

import json
import shutil
import struct
from pathlib import Path

import gguf
import pytest
from tests.models import tiny

from stoker.base.errors import Invalid
from stoker.drivers import weights
from stoker.drivers.weights import gguf as gguf_header


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tiny.Tiny:
    return tiny.make(tmp_path_factory.mktemp("models"))


@pytest.fixture
def folder(made: tiny.Tiny, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder, tmp_path / "model"))


def tensor_bytes(reader: gguf.GGUFReader) -> int:
    return sum(int(tensor.n_bytes) for tensor in reader.tensors)


def test_a_gguf_file_tells_what_its_maker_wrote(made: tiny.Tiny) -> None:
    found = weights.read(made.gguf)

    assert (found.format, found.architecture, found.context_tokens) == ("gguf", "llama", tiny.CONTEXT)
    assert found.model.chat_template == tiny.TEMPLATE
    assert found.licence == "apache-2.0"
    assert found.model.weight_bytes == tensor_bytes(gguf.GGUFReader(made.gguf))


def test_tensor_types_have_the_sizes_of_the_format() -> None:
    known = {
        int(kind): tuple(sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items() if kind.name != "Q8_1"
    }  # not stored

    assert {kind: gguf_header._BLOCKS[kind] for kind in known} == known


@pytest.mark.parametrize("cut", [0, 3, 20, 100, 5_000, 20_000, -1])
def test_a_gguf_file_that_is_cut_is_refused(made: tiny.Tiny, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(made.gguf.read_bytes()[:cut])

    with pytest.raises(Invalid, match=r"cut off|no GGUF file|speaks of"):
        weights.read(path)


def test_shards_of_a_gguf_file_are_all_needed(made: tiny.Tiny, tmp_path: Path) -> None:
    for number in (1, 2):
        shutil.copy(made.gguf, tmp_path / f"m-{number:05d}-of-00002.gguf")

    whole = weights.read(tmp_path)

    assert len(whole.files) == 2
    assert whole.model.weight_bytes == 2 * weights.read(made.gguf).model.weight_bytes
    whole.files[1].unlink()
    with pytest.raises(Invalid, match=r"1 of 2 files are missing: m-00002-of-00002\.gguf"):
        weights.read(tmp_path)


def test_a_checkpoint_tells_the_same(made: tiny.Tiny, folder: Path) -> None:
    (folder / "README.md").write_text("---\nlanguage: en\nlicense: other\nlicense_name: gemma\n---\nA model.\n")

    found = weights.read(folder)

    assert (found.model.format, found.model.architecture) == ("safetensors", "LlamaForCausalLM")
    assert (found.model.context_tokens, found.model.chat_template) == (tiny.CONTEXT, tiny.TEMPLATE)
    assert found.model.weight_bytes == weights.read(made.gguf).model.weight_bytes
    assert (found.licence, found.licence_title) == ("other", "gemma")


def test_an_index_must_be_kept(folder: Path) -> None:
    index = folder / weights.INDEX
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "model.safetensors", "gone": "model.safetensors"}}))
    with pytest.raises(Invalid, match="no file has the tensor gone"):
        weights.read(folder)

    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}))
    with pytest.raises(Invalid, match=r"1 files are missing: model-00002-of-00002\.safetensors"):
        weights.read(folder)


@pytest.mark.parametrize("keep", [0, 4, 8, 500, -1])
def test_a_checkpoint_that_is_cut_is_refused(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])

    with pytest.raises(Invalid, match=r"cut off|speaks of"):
        weights.read(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config.json": {"auto_map": {"AutoModel": "modeling.X"}}}, "remote code is refused"),
        ({"tokenizer_config.json": {"auto_map": {"AutoTokenizer": "tok.X"}}}, "remote code is refused"),
        ({"config.json": None}, "config.json: it is missing"),
        ({"config.json": "nonsense"}, "config.json: it cannot be read"),
        ({"model.safetensors": struct.pack("<Q", 4) + b"nope"}, "header cannot be read"),
    ],
)
def test_a_checkpoint_with_a_fault_is_refused(folder: Path, change: dict[str, object], words: str) -> None:
    for name, content in change.items():
        if content is None:
            (folder / name).unlink()
        elif isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))

    with pytest.raises(Invalid, match=words):
        weights.read(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "weights.pth"])
def test_pickles_are_refused_alone_and_in_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04")

    for path in (tmp_path, tmp_path / name):
        with pytest.raises(Invalid, match="is a program that runs when it is opened"):
            weights.read(path)


def test_a_pickle_beside_safetensors_is_not_looked_at(folder: Path) -> None:
    (folder / "training_args.bin").write_bytes(b"\x80\x04")

    assert weights.read(folder).model.format == "safetensors"


def test_what_is_no_model_is_told(tmp_path: Path, made: tiny.Tiny) -> None:
    with pytest.raises(Invalid, match="there are no model files"):
        weights.read(tmp_path)
    with pytest.raises(Invalid, match="there is no such file"):
        weights.read(tmp_path / "absent.gguf")
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(made.gguf, tmp_path / name)
    with pytest.raises(Invalid, match=r"several models: a\.gguf, b\.gguf"):
        weights.read(tmp_path)
