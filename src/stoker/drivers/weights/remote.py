"""Read a hub model's headers without fetching it: at most two requests a file.

The first takes the beginning, which holds a small header whole; the second takes the rest of a longer one. A server
that knows no ranges is left before it sends the weights.
"""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]  # documented, not typed

from stoker.base.errors import Driver, Fault, Invalid
from stoker.drivers import hub
from stoker.drivers.weights import files, gguf, safetensors
from stoker.drivers.weights.survey import Survey, build, decode, from_headers
from stoker.predict.roles import Tensor

_FIRST: Final = 128 << 10
_FIRST_GGUF: Final = 4 << 20  # its header holds the vocabulary
_REST_GGUF: Final = 64 << 20
_SMALL: Final = 32 << 20  # a config or template is never longer


class _Reader:
    """The files of one commit, by ranges."""

    def __init__(self, job: hub.Job, token: str) -> None:
        self.job = job
        self.token = token
        self.requests = 0

    def take(self, item: hub.Item, start: int, end: int) -> bytes:
        """Bytes ``start`` up to ``end`` of a file, fewer where it ends before."""
        self.requests += 1
        headers = build_hf_headers(token=self.token or None)
        headers |= {"Accept-Encoding": "identity", "Range": f"bytes={start}-{end - 1}"}
        with (
            hub.told(self.job, item.name),
            get_session().stream(
                "GET", item.url, headers=headers, follow_redirects=True, timeout=hub.TIMEOUT_SECONDS
            ) as answer,
        ):
            if answer.status_code >= 400:
                raise hub.status(answer.status_code, item.name, answer.headers.get("retry-after", ""))
            skip = 0 if answer.status_code == 206 else start
            data = bytearray()
            for block in answer.iter_raw():
                data += block
                if len(data) >= skip + end - start:
                    break
        return bytes(data[skip : skip + end - start])

    def whole(self, item: hub.Item) -> bytes:
        """All of a small file."""
        return self.take(item, 0, min(item.size or _SMALL, _SMALL))


def survey(repo: str, *, revision: str = "", endpoint: str = "", token: str = "", file: str = "") -> Survey:
    """Read the headers of a repository; raises Driver or Invalid. ``file``: which one, of several GGUF models."""
    include = (file,) if file else ()
    job = hub.Job(folder="", repo=repo, revision=revision, endpoint=endpoint, include=include)
    _, licence, items = hub.resolve(job, token or None)
    reader = _Reader(job, token)
    if any(item.name.endswith(".safetensors") for item in items):
        found = _checkpoint(repo, licence, items, reader)
    else:
        found = _gguf(repo, licence, [item for item in items if item.name.endswith(".gguf")], reader)
    return replace(found, requests=reader.requests + 1)


def _checkpoint(repo: str, licence: str, items: Sequence[hub.Item], reader: _Reader) -> Survey:
    by_name = {item.name: item for item in items}
    if "config.json" not in by_name:
        raise Invalid(Fault(message="the repository has no config.json", file=repo))
    config = decode(reader.whole(by_name["config.json"]), where=f"{repo}/config.json")
    shards = [item for item in items if item.name.endswith(".safetensors")]
    if files.INDEX in by_name:
        wanted = files.index(reader.whole(by_name[files.INDEX]), where=f"{repo}/{files.INDEX}")
        if missing := sorted(set(wanted.values()) - set(by_name)):
            why = f"{len(missing)} files are missing: {missing[0]}"
            raise Invalid(Fault(message=why, file=f"{repo}/{files.INDEX}"))
        shards = [item for item in shards if item.name in set(wanted.values())]
    tensors = [tensor for item in shards for tensor in _header(item, reader)]
    template = by_name.get("chat_template.jinja")
    described = files.Weights(
        path=repo,
        format="safetensors",
        architecture="",
        chat_template=reader.whole(template).decode(errors="replace") if template else "",
        weight_bytes=sum(tensor.size_bytes for tensor in tensors),
        licence=licence,
        name=repo,
        files=tuple(Path(item.name) for item in shards),
    )
    return build(repo, config, tensors, described=described)


def _header(item: hub.Item, reader: _Reader) -> Sequence[Tensor]:
    if not item.size:
        raise Driver(f"{item.name}: the hub does not say how long it is")
    start = reader.take(item, 0, _FIRST)
    length = safetensors.header_length(start[: safetensors.PREFIX], where=item.name, size=item.size)
    end = safetensors.PREFIX + length
    if end > len(start):
        start += reader.take(item, len(start), end)
    if len(start) < end:
        raise Driver(f"{item.name}: the hub sent {len(start)} of {end} bytes of the header")
    return safetensors.parse(start[safetensors.PREFIX : end], where=item.name, size=item.size)


def _gguf(repo: str, licence: str, items: Sequence[hub.Item], reader: _Reader) -> Survey:
    headers = [_gguf_header(item, reader) for item in items]
    keys = headers[0].keys
    described = files.Weights(
        path=PurePosixPath(items[0].name).name,
        format="gguf",
        architecture=str(keys.get("general.architecture", "")),
        chat_template=str(keys.get("tokenizer.chat_template", "")),
        weight_bytes=sum(header.tensor_bytes for header in headers),
        licence=licence,
        name=f"{repo}/{items[0].name}",
    )
    return from_headers(described, headers)


def _gguf_header(item: hub.Item, reader: _Reader) -> gguf.Header:
    start = reader.take(item, 0, _FIRST_GGUF)
    try:
        return gguf.parse(io.BytesIO(start), where=item.name, size=item.size)
    except Invalid:
        if len(start) < _FIRST_GGUF:
            raise  # that was the whole file
    start += reader.take(item, len(start), _FIRST_GGUF + _REST_GGUF)
    return gguf.parse(io.BytesIO(start), where=item.name, size=item.size)
