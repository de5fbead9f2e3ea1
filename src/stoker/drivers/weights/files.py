"""What do model files say about themselves? Read from headers alone; nothing is loaded and no code of a model runs.

Safetensors and GGUF only. A pickle checkpoint is a program that runs when it is opened, and ``auto_map`` names Python
files that an engine would import: both are refused with that reason. A header that is cut, a shard that is missing and
an index that names a tensor which no shard has are Invalid here, before an engine spends minutes on them.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.drivers.weights import gguf, safetensors
from stoker.predict.roles import Tensor

if TYPE_CHECKING:
    from stoker.engines.base import Model

PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
INDEX: Final = "model.safetensors.index.json"
_Kind = TypeVar("_Kind", "_Config", "_TokenizerConfig", "_Index")
_SHARD: Final = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One model as its files describe it. ``licence`` is the raw word, ``licence_title`` its own name."""

    path: str
    format: str  # gguf | safetensors
    architecture: str
    context_tokens: int = 0  # 0: they do not say
    chat_template: str = ""
    weight_bytes: int = 0
    licence: str = ""
    licence_title: str = ""
    name: str = ""
    files: tuple[Path, ...] = ()

    @property
    def model(self) -> "Model":
        """The part that an engine's command line depends on."""
        # Here, for a plan needs no adapter, and the specs that come with them take a tenth of a second to load.
        from stoker.engines.base import Model  # noqa: PLC0415

        return Model(
            path=self.path,
            format=self.format,
            architecture=self.architecture,
            context_tokens=self.context_tokens,
            chat_template=self.chat_template,
            weight_bytes=self.weight_bytes,
        )


class _Config(msgspec.Struct, frozen=True):
    architectures: tuple[str, ...] = ()
    model_type: str = ""
    max_position_embeddings: int = 0
    text_config: "_Config | None" = None
    auto_map: dict[str, object] | None = None


class _TokenizerConfig(msgspec.Struct, frozen=True):
    chat_template: object = None
    auto_map: dict[str, object] | None = None


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """A model with all its headers: a hundred thousand tensors for the largest, so only a plan keeps them."""

    weights: Weights
    tensors: Sequence[Tensor] = ()  # of a checkpoint
    parts: Sequence[gguf.Header] = ()  # of a GGUF model, one a file


def read(path: Path) -> Weights:
    """Read a .gguf file or a checkpoint folder; raises Invalid with what is wrong and what to do."""
    return headers(path).weights


def headers(path: Path) -> Headers:
    """Read the same, and keep what every tensor is."""
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise _invalid(path, "there is no such file")
    if path.suffix in PICKLES:
        raise _pickle(path)
    if path.suffix == ".safetensors":
        raise _invalid(
            path, "a single safetensors file lacks its configuration", hint=f"name its folder, {path.parent}"
        )
    return _gguf(path)


def _folder(path: Path) -> Headers:
    names = sorted(os.listdir(path))  # noqa: PTH208 - names are what is looked at
    if any(name.endswith(".safetensors") for name in names):
        return _checkpoint(path, names)
    first = [name for name in names if name.endswith(".gguf") and "mmproj" not in name]
    first = [name for name in first if (found := _SHARD.match(name)) is None or int(found["number"]) == 1]
    if len(first) == 1:
        return _gguf(path / first[0])
    if first:
        raise _invalid(path, f"there are several models: {', '.join(first)}", hint="name one of the files")
    if pickles := [name for name in names if name.endswith(PICKLES)]:
        raise _pickle(path / pickles[0])
    raise _invalid(path, "there are no model files", hint="a .gguf file, or .safetensors files with their config.json")


def _gguf(path: Path) -> Headers:
    """Read the header of the first file; its shards must all be there and whole."""
    files = _gguf_files(path)
    found = [gguf.read(each) for each in files]
    keys = found[0].keys
    architecture = str(keys.get("general.architecture", ""))
    if not architecture:
        raise _invalid(path, "the header names no architecture")
    context = keys.get(f"{architecture}.context_length", 0)
    weights = Weights(
        path=str(path),
        format="gguf",
        architecture=architecture,
        context_tokens=int(context) if isinstance(context, int) else 0,
        chat_template=str(keys.get("tokenizer.chat_template", "")),
        weight_bytes=sum(header.tensor_bytes for header in found),
        licence=str(keys.get("general.license", "")),
        licence_title=str(keys.get("general.license.name", "")),
        name=str(keys.get("general.name", "")),
        files=tuple(files),
    )
    return Headers(weights=weights, parts=found)


def _gguf_files(path: Path) -> list[Path]:
    found = _SHARD.match(path.name)
    if found is None:
        return [path]
    count = int(found["count"])
    files = [path.with_name(f"{found['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    if missing := [each.name for each in files if not each.exists()]:
        raise _invalid(path, f"{len(missing)} of {count} files are missing: {missing[0]}")
    return files


def _checkpoint(path: Path, names: list[str]) -> Headers:
    config = _json(path / "config.json", _Config)
    words = _json(path / "tokenizer_config.json", _TokenizerConfig) if "tokenizer_config.json" in names else None
    for name, described in (("config.json", config), ("tokenizer_config.json", words)):
        if described is not None and described.auto_map:
            raise _invalid(
                path / name,
                "auto_map names Python files that the engine would run: remote code is refused",
                hint="take a version of the model that an engine knows by itself",
            )
    inner = config.text_config or config
    present = _shards(path, names)
    tensors = [tensor for found in present.values() for tensor in found]
    words_of_card = _card(path)
    weights = Weights(
        path=str(path),
        format="safetensors",
        architecture=(config.architectures or (config.model_type,))[0],
        context_tokens=config.max_position_embeddings or inner.max_position_embeddings,
        chat_template=_template(path, words),
        weight_bytes=sum(tensor.size_bytes for tensor in tensors),
        licence=words_of_card.get("license", ""),
        licence_title=words_of_card.get("license_name", ""),
        name=path.name,
        files=tuple(path / name for name in present),
    )
    return Headers(weights=weights, tensors=tensors)


def _shards(path: Path, names: list[str]) -> Mapping[str, Sequence[Tensor]]:
    """Read every shard's header and compare it with the index."""
    present = {name: safetensors.read(path / name) for name in names if name.endswith(".safetensors")}
    if INDEX not in names:
        return present
    wanted = _json(path / INDEX, _Index).weight_map
    if missing := sorted(set(wanted.values()) - set(present)):
        raise _invalid(path / INDEX, f"{len(missing)} files are missing: {missing[0]}", hint="fetch the model again")
    there = {name: {tensor.name for tensor in found} for name, found in present.items()}
    absent = [tensor for tensor, name in wanted.items() if tensor not in there[name]]
    if absent:
        raise _invalid(path / INDEX, f"no file has the tensor {absent[0]}, which the index promises")
    used = set(wanted.values())
    return {name: found for name, found in present.items() if name in used}


def index(data: bytes, *, where: str) -> Mapping[str, str]:
    """Which file has which tensor, as the index of a checkpoint says."""
    try:
        return msgspec.json.decode(data, type=_Index).weight_map
    except msgspec.MsgspecError as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=where)) from error


def _template(path: Path, words: _TokenizerConfig | None) -> str:
    own = path / "chat_template.jinja"
    if own.exists():
        return own.read_text()
    return words.chat_template if words is not None and isinstance(words.chat_template, str) else ""


def _card(path: Path) -> dict[str, str]:
    """The licence words in the front matter of the model card, if there is one."""
    card = path / "README.md"
    if not card.exists():
        return {}
    matter = card.read_text(errors="replace")[:20_000].partition("---\n")[2].partition("\n---")[0]
    return dict(re.findall(r"^(license|license_name):[ \t]*[\"']?([^\s\"'#]+)", matter, re.MULTILINE))


def _json(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise _invalid(path, "it is missing", hint="a checkpoint needs its configuration beside the weights") from error
    except msgspec.MsgspecError as error:
        raise _invalid(path, f"it cannot be read: {error}") from error


def _pickle(path: Path) -> Invalid:
    return _invalid(
        path,
        "a pickle checkpoint is a program that runs when it is opened: refused",
        hint="take the safetensors or GGUF files of the model",
    )


def _invalid(path: Path, message: str, *, hint: str = "") -> Invalid:
    return Invalid(Fault(message=message, file=str(path), hint=hint))
