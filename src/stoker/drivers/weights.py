"""Read a model from its headers: format, architecture, context, template, licence, bytes. Never the weights themselves.

A file that is cut, a shard that is missing, an index that names what is not there: each is a clear error before an
engine spends minutes on it. Pickle checkpoints and repositories that bring code are refused: both run what they like.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject

Value: TypeAlias = str | int | float | bool | None

_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SCALARS: Final[Mapping[int, str]] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_LONGEST: Final = 1 << 26  # a string or header longer than this is a damaged one
# (values a block, bytes a block) of ggml types, from ggml's table of types.
_BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a model's files say about themselves. 0 and the empty string: they do not say."""

    path: str
    format: str  # gguf | safetensors
    architecture: str = ""
    context_tokens: int = 0
    chat_template: str = ""
    weight_bytes: int = 0
    tensors: int = 0
    licence: str = ""
    licence_title: str = ""
    name: str = ""


def read(path: Path) -> Header:
    """Read a .gguf file, a folder with one, or a checkpoint folder. Raises Invalid naming what is wrong with it."""
    if not path.exists():
        raise Invalid(Fault(message="does not exist", file=str(path)))
    if path.is_file():
        if path.suffix in _PICKLES:
            raise _pickle(path)
        return read_gguf(path)
    return _folder(path)


def _folder(path: Path) -> Header:
    ggufs = sorted(path.glob("*.gguf"))
    if (path / "config.json").exists():
        return read_checkpoint(path)
    if len(ggufs) == 1 or (ggufs and "-00001-of-" in ggufs[0].name):
        return read_gguf(ggufs[0])
    if ggufs:
        names = ", ".join(p.name for p in ggufs)
        raise Invalid(Fault(message="the folder holds several GGUF files; name one", file=str(path), hint=names))
    pickles = [p for p in sorted(path.iterdir()) if p.suffix in _PICKLES]
    if pickles:
        raise _pickle(pickles[0])
    raise Invalid(Fault(message="holds neither a .gguf file nor config.json with safetensors", file=str(path)))


def _pickle(path: Path) -> Invalid:
    return Invalid(
        Fault(
            message="is a pickle checkpoint: loading one runs whatever code it contains",
            file=str(path),
            hint="take the safetensors or GGUF version of the model",
        )
    )


def read_gguf(path: Path) -> Header:
    """Read a GGUF header and check that the file is as long as its tensors need."""
    try:
        with path.open("rb") as file:
            return _gguf(_Reader(file, path), path)
    except OSError as error:
        raise Invalid(Fault(message=f"cannot be read: {error.strerror or error}", file=str(path))) from error


def _gguf(reader: "_Reader", path: Path) -> Header:
    if reader.take(4) != b"GGUF":
        raise Invalid(Fault(message="is no GGUF file: it does not begin with 'GGUF'", file=str(path)))
    version = reader.number("<I")
    if version not in (2, 3):
        raise Invalid(Fault(message=f"has GGUF version {version}; 2 and 3 can be read", file=str(path)))
    count, pairs = int(reader.number("<Q")), int(reader.number("<Q"))
    if count > 1 << 20 or pairs > 1 << 16:
        raise Invalid(Fault(message="its header is damaged: impossible counts", file=str(path)))
    told: dict[str, Value] = {}
    for _ in range(pairs):
        key = reader.string()
        told[key] = reader.value(int(reader.number("<I")))
    weight, end = _gguf_tensors(reader, count, path)
    alignment = told.get("general.alignment")
    step = alignment if isinstance(alignment, int) and alignment > 0 else 32
    start = -(-reader.position // step) * step
    size = path.stat().st_size
    if size < start + end:
        raise Invalid(Fault(message=f"is cut: {size} bytes, and its tensors end at {start + end}", file=str(path), hint="fetch it again"))
    architecture = _word(told, "general.architecture")
    context = told.get(f"{architecture}.context_length")
    return Header(
        path=str(path),
        format="gguf",
        architecture=architecture,
        context_tokens=context if isinstance(context, int) else 0,
        chat_template=_word(told, "tokenizer.chat_template"),
        weight_bytes=weight,
        tensors=count,
        licence=_word(told, "general.license"),
        licence_title=_word(told, "general.license.name"),
        name=_word(told, "general.name"),
    )


def _gguf_tensors(reader: "_Reader", count: int, path: Path) -> tuple[int, int]:
    """Sum the bytes of all tensors, and find where the last one ends."""
    total = end = 0
    for _ in range(count):
        name = reader.string()
        dimensions = int(reader.number("<I"))
        if dimensions > 8:
            raise Invalid(Fault(message=f"tensor {name} has {dimensions} dimensions: the header is damaged", file=str(path)))
        values = 1
        for _ in range(dimensions):
            values *= int(reader.number("<Q"))
        kind, offset = int(reader.number("<I")), int(reader.number("<Q"))
        if kind in _BLOCKS:
            block, width = _BLOCKS[kind]
            size = -(-values // block) * width
            total += size
            end = max(end, offset + size)
    return total, end


class _Reader:
    """Reads little-endian values and says where a file ends too soon."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path

    @property
    def position(self) -> int:
        return self._file.tell()

    def take(self, size: int) -> bytes:
        if size > _LONGEST:
            raise Invalid(Fault(message=f"its header is damaged: an entry of {size} bytes", file=str(self._path)))
        data = self._file.read(size)
        if len(data) < size:
            raise Invalid(Fault(message=f"its header is cut at byte {self.position}", file=str(self._path), hint="fetch it again"))
        return data

    def number(self, form: str) -> float:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return found  # type: ignore[no-any-return]

    def string(self) -> str:
        return self.take(int(self.number("<Q"))).decode(errors="replace")

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SCALARS:
            raise Invalid(Fault(message=f"its header has a value of unknown type {kind}", file=str(self._path)))
        return self.number(_SCALARS[kind])

    def _skip_array(self) -> None:
        kind, count = int(self.number("<I")), int(self.number("<Q"))
        if kind in _SCALARS:
            self._file.seek(struct.calcsize(_SCALARS[kind]) * count, 1)
            return
        for _ in range(count):
            self.value(kind)


def read_checkpoint(folder: Path) -> Header:
    """Read config.json and every safetensors header of a checkpoint folder."""
    config = _json(folder / "config.json")
    if "auto_map" in config:
        raise Invalid(
            Fault(
                message="brings code of its own (auto_map), which would run with all rights of the engine",
                file=str(folder / "config.json"),
                hint="take a model that the engine knows by itself",
            )
        )
    shards = _shards(folder)
    tensors: dict[str, int] = {}
    for shard in shards:
        tensors |= read_safetensors(shard)
    _index_matches(folder, tensors)
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    named = config.get("architectures")
    card = _card(folder / "README.md")
    tokenizer = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    context = inner.get("max_position_embeddings")
    return Header(
        path=str(folder),
        format="safetensors",
        architecture=str(named[0]) if isinstance(named, list) and named else "",
        context_tokens=context if isinstance(context, int) else 0,
        chat_template=_template(folder, tokenizer),
        weight_bytes=sum(tensors.values()),
        tensors=len(tensors),
        licence=card.get("license", ""),
        licence_title=card.get("license_name", ""),
        name=folder.name,
    )


def read_safetensors(path: Path) -> dict[str, int]:
    """Read the tensors of one shard: name to bytes. Raises Invalid for a header that is cut or does not fit the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", _Reader(file, path).take(8))
            if length > min(size, _LONGEST * 4):
                raise Invalid(Fault(message=f"its header claims {length} bytes of {size}", file=str(path), hint="fetch it again"))
            header = msgspec.json.decode(file.read(length))
    except (OSError, msgspec.DecodeError) as error:
        raise Invalid(Fault(message=f"its header cannot be read: {error}", file=str(path), hint="fetch it again")) from error
    tensors: dict[str, int] = {}
    end = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = entry.get("data_offsets") or (0, -1)
        if not 0 <= first <= last:
            raise Invalid(Fault(message=f"tensor {name} has a negative size", file=str(path)))
        tensors[name] = last - first
        end = max(end, last)
    if size < 8 + length + end:
        raise Invalid(Fault(message=f"is cut: {size} bytes, and its tensors end at {8 + length + end}", file=str(path), hint="fetch it again"))
    return tensors


def _shards(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        pickles = [p for p in sorted(folder.iterdir()) if p.suffix in _PICKLES]
        if pickles:
            raise _pickle(pickles[0])
        raise Invalid(Fault(message="holds no .safetensors file", file=str(folder)))
    return found


def _index_matches(folder: Path, tensors: Mapping[str, int]) -> None:
    """Compare the index with what is there: an engine would find the gap only after loading the rest."""
    path = folder / "model.safetensors.index.json"
    if not path.exists():
        return
    named = _json(path).get("weight_map")
    if not isinstance(named, dict):
        raise Invalid(Fault(message="has no weight_map", file=str(path)))
    for shard in sorted({str(s) for s in named.values()}):
        if not (folder / shard).exists():
            raise Invalid(Fault(message=f"names the shard {shard}, which is not there", file=str(path), hint="fetch it again"))
    absent = next((name for name in named if name not in tensors), None)
    if absent is not None:
        raise Invalid(Fault(message=f"names the tensor {absent}, which no shard has", file=str(path)))


def _template(folder: Path, tokenizer: JsonObject) -> str:
    own = folder / "chat_template.jinja"
    if own.exists():
        return own.read_text(errors="replace")
    found = tokenizer.get("chat_template")
    return found if isinstance(found, str) else ""


def _card(path: Path) -> dict[str, str]:
    """Read ``license`` lines of a model card's front matter; a card is prose, so nothing else is taken from it."""
    if not path.exists():
        return {}
    head = path.read_text(errors="replace").split("---", 2)
    lines = head[1].splitlines() if len(head) > 2 and not head[0].strip() else []
    pairs = (line.partition(":") for line in lines if line.startswith("license"))
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}


def _json(path: Path) -> JsonObject:
    try:
        value: Json = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise Invalid(Fault(message=f"cannot be read: {error}", file=str(path))) from error
    if not isinstance(value, dict):
        raise Invalid(Fault(message="is no JSON object", file=str(path)))
    return value


def _word(told: Mapping[str, Value], key: str) -> str:
    found = told.get(key)
    return found if isinstance(found, str) else ""
