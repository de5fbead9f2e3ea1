"""Fetch one model from a hub or a URL: ``python -m stoker.drivers.hub``, the job as JSON on standard input.

A process of its own: its libraries take more memory than the controller. It writes one line of JSON a step: ``done``
and ``total`` bytes, and at the end ``path`` or ``error``.
1. A revision is resolved to its commit first; files come from that commit and lie in a folder of that name.
2. A cut download goes on where it stopped; every file with a digest is checked over all of its bytes.
3. The folder gets its name when everything in it is complete, with a marker that says what it is.
4. One process a repository fetches; others wait for the lock and then find it done.
5. A full disk leaves nothing behind; any other failure leaves only what a later try goes on with.
"""

import contextlib
import errno
import fnmatch
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, NoReturn

import msgspec
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError: what its client raises
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session  # type: ignore[attr-defined]  # documented, not typed

from stoker.base import clock
from stoker.base.errors import Driver, Invalid
from stoker.base.units import show_bytes
from stoker.drivers import downloads, lock

BLOCK: Final = 1 << 20
TRIES: Final = 6  # in a row without a byte; a try that made progress starts the count anew
TIMEOUT_SECONDS: Final = 60.0
CONFIGURATION: Final = ("*.json", "*.jinja", "*.model", "tokenizer*", "README.md", "LICENSE*", "*.txt")
PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.py")
PREFERRED: Final = "Q4_K_M"  # of several GGUF files: what most people run


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch (see downloads.Download)."""

    folder: str
    repo: str = ""
    revision: str = ""
    url: str = ""
    endpoint: str = ""
    token_file: str = ""
    include: tuple[str, ...] = ()
    sha256: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One file to fetch. ``size`` 0: unknown; ``sha256`` empty: nobody says."""

    name: str
    url: str
    size: int = 0
    sha256: str = ""


class _Meter:
    """Bytes so far, told at most every half second."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self._told = 0.0

    def add(self, count: int) -> None:
        """Count bytes, and tell now and then."""
        self.done += count
        if clock.mono() - self._told > 0.5:
            self._told = clock.mono()
            _tell({"done": self.done, "total": max(self.total, self.done)})


def choose(names: Sequence[str], include: Sequence[str]) -> list[str]:
    """Pick the files of a repository: those asked for, else safetensors with their configuration, else one GGUF.

    Raises Invalid when nothing that may be opened is there, or when several GGUF files leave the choice open.
    """
    safe = [name for name in names if not _like(name, PICKLES)]
    if include:
        if chosen := [name for name in safe if _like(name, include)]:
            return chosen
        raise Invalid(f"no file of the repository matches {', '.join(include)} (pickles and code are never fetched)")
    if any(name.endswith(".safetensors") for name in safe):
        top = [name for name in safe if "/" not in name]
        return [name for name in top if name.endswith(".safetensors") or _like(name, CONFIGURATION)]
    models = sorted({_stem(name) for name in safe if name.endswith(".gguf") and "mmproj" not in name})
    preferred = [stem for stem in models if PREFERRED.lower() in stem.lower()] if len(models) > 1 else models
    if len(preferred) == 1:
        wanted = [name for name in safe if name.endswith(".gguf") and _stem(name) == preferred[0]]
        return wanted + [name for name in safe if _like(name, ("README.md", "LICENSE*"))]
    if models:
        raise Invalid(f"the repository has {len(models)} GGUF models; name one with files: {', '.join(models[:8])}")
    raise Invalid("the repository has neither safetensors nor GGUF files; pickle checkpoints are refused")


def run(job: Job) -> Path:
    """Fetch and return where the complete files lie. Raises Driver or Invalid."""
    folder = downloads.place(Path(job.folder), repo=job.repo, url=job.url)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = Path(job.token_file).read_text().strip() if job.token_file else None
    if job.url:
        name = PurePosixPath(job.url.partition("?")[0]).name or "model"
        items, target = [Item(name=name, url=job.url)], folder
        marker = {"url": job.url}
    else:
        commit, licence, items = resolve(job, token)
        target = folder / commit
        marker = {"repo": job.repo, "commit": commit, "revision": job.revision, "licence": licence}
    with lock.wait(folder / ".lock"):
        if not (target / downloads.MARKER).exists():
            _fetch_all(job, _with_digests(items, job.sha256), target, token=token, marker=marker)
    return target


def resolve(job: Job, token: str | None) -> tuple[str, str, list[Item]]:
    """Ask the hub for the commit of the revision and for its files."""
    api = HfApi(endpoint=job.endpoint or None, token=token)
    with told(job):
        info = api.model_info(job.repo, revision=job.revision or None, files_metadata=True, timeout=TIMEOUT_SECONDS)
    commit = info.sha or ""
    if not commit:
        raise Driver(f"the hub names no commit of {job.repo}")
    by_name = {each.rfilename: each for each in info.siblings or ()}
    items = []
    for name in choose(list(by_name), job.include):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Driver(f"the hub names a file outside its repository: {name}")
        large = by_name[name].lfs
        url = hf_hub_url(job.repo, name, revision=commit, endpoint=job.endpoint or None)
        items.append(Item(name=name, url=url, size=by_name[name].size or 0, sha256=large.sha256 if large else ""))
    licence = next((tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")), "")
    return commit, licence, items


def _with_digests(items: Sequence[Item], digests: Sequence[tuple[str, str]]) -> list[Item]:
    """Add the digests that the user gave; an empty name means the only file."""
    given = dict(digests)
    if unknown := [name for name in given if name and name not in {item.name for item in items}]:
        raise Invalid(f"a sha256 is given for {unknown[0]}, which is not fetched")
    if "" in given and len(items) > 1:
        large = [item for item in items if item.sha256]
        given[large[0].name if len(large) == 1 else ""] = given.pop("")
    found = []
    for item in items:
        wanted = given.get(item.name, given.get("", "") if len(items) == 1 else "").lower()
        if wanted and item.sha256 and wanted != item.sha256:
            why = f"{item.name}: the hub says sha256 {item.sha256}, and {wanted} is asked for"
            raise Driver(why, reason="ChecksumMismatch")
        found.append(Item(name=item.name, url=item.url, size=item.size, sha256=wanted or item.sha256))
    return found


def _fetch_all(job: Job, items: Sequence[Item], target: Path, *, token: str | None, marker: dict[str, str]) -> None:
    part = target.with_name(f"{target.name}.part")
    part.mkdir(mode=0o700, exist_ok=True)
    meter = _Meter(sum(item.size for item in items))
    try:
        here = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        free = shutil.disk_usage(part).free
        if meter.total - here > free:
            _no_room(meter.total - here, free)
        sums = {}
        for item in items:
            sums[item.name] = _fetch_one(job, item, part / item.name, token=token, meter=meter)
        (part / downloads.MARKER).write_bytes(msgspec.json.encode({**marker, "sha256": sums}))
        _complete(part, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            shutil.rmtree(part, ignore_errors=True)
            raise Driver(
                f"the disk is full: {error.strerror}; nothing of the download was kept", reason="DiskFull"
            ) from error
        raise Driver(f"cannot write {part}: {error.strerror or error}") from error


def _no_room(wanted: int, free: int) -> NoReturn:
    raise OSError(errno.ENOSPC, f"{show_bytes(wanted)} are needed and {show_bytes(free)} are free")


def _fetch_one(job: Job, item: Item, path: Path, *, token: str | None, meter: _Meter) -> str:
    """Bring one file here whole, from where it stopped before, and return its checked digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tries = 0
    with path.open("a+b") as file:
        sink = _Sink(file, meter)
        while True:
            before = sink.at
            try:
                with told(job, item.name):
                    if _continue(item, sink, token=token):
                        break
            except Driver:
                tries = 0 if sink.at > before else tries + 1
                if tries >= TRIES or sink.at == before == 0:
                    raise
            clock.sleep(min(5.0, 0.1 * 2.0**tries))
        file.flush()
        os.fsync(file.fileno())
    found = sink.digest.hexdigest()
    if item.sha256 and found != item.sha256:
        path.unlink()
        why = f"{item.name}: its sha256 is {found}, and {item.sha256} was promised; it was removed"
        raise Driver(why, reason="ChecksumMismatch")
    return found


def _continue(item: Item, sink: "_Sink", *, token: str | None) -> bool:
    """Append what is missing; True when the file is whole."""
    if item.size and sink.at >= item.size:
        return True
    headers = build_hf_headers(token=token) | {"Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes={sink.at}-"} if sink.at else {}
    with get_session().stream(
        "GET", item.url, headers=headers, follow_redirects=True, timeout=TIMEOUT_SECONDS
    ) as answer:
        if answer.status_code == 416:
            return True
        if answer.status_code >= 400:
            raise status(answer.status_code, item.name, answer.headers.get("retry-after", ""))
        if answer.status_code != 206:  # the first try, or a server that knows no ranges
            sink.empty()
        wanted = item.size or sink.at + int(answer.headers.get("content-length") or 0)
        for block in answer.iter_raw():  # as it comes: what waits for a full block is lost at a cut
            sink.write(block)
    if sink.at < wanted:
        raise Driver(f"{item.name}: the connection broke off after {show_bytes(sink.at)} of {show_bytes(wanted)}")
    return True


class _Sink:
    """A file that grows, with the digest of all that is in it."""

    def __init__(self, file: IO[bytes], meter: _Meter) -> None:
        self.file = file
        self.meter = meter
        self.at = 0
        self.digest = hashlib.sha256()
        file.seek(0)
        while block := file.read(BLOCK):
            self._count(block)

    def write(self, block: bytes) -> None:
        """Append."""
        self.file.write(block)
        self._count(block)

    def empty(self) -> None:
        """Begin anew."""
        self.file.truncate(0)
        self.meter.done -= self.at
        self.at = 0
        self.digest = hashlib.sha256()

    def _count(self, block: bytes) -> None:
        self.at += len(block)
        self.digest.update(block)
        self.meter.add(len(block))


def _complete(part: Path, target: Path) -> None:
    """Give the folder its name; a reader sees all of it or nothing."""
    if target.exists():  # without a marker: a URL's folder holds the lock file, or an older failure
        for file in part.iterdir():
            if file.name != downloads.MARKER:
                file.replace(target / file.name)
        (part / downloads.MARKER).replace(target / downloads.MARKER)
        part.rmdir()
    else:
        part.replace(target)
    fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def told(job: Job, name: str = "") -> Iterator[None]:
    """Turn what the hub's client raises into words for a person."""
    what = name or job.repo
    try:
        yield
    except GatedRepoError as error:
        raise Driver(f"{job.repo} is gated: its terms must be accepted on the hub", reason="HubDenied") from error
    except RevisionNotFoundError as error:
        raise Driver(f"{job.repo} has no revision '{job.revision}'", reason="HubNotFound") from error
    except RepositoryNotFoundError as error:
        why = f"the hub has no repository '{job.repo}', or it is private and needs a token"
        raise Driver(why, reason="HubNotFound") from error
    except HFValidationError as error:
        raise Driver(f"'{job.repo}' is no repository name: {error}", reason="HubNotFound") from error
    except HfHubHTTPError as error:
        code = error.response.status_code
        raise status(code, what, error.response.headers.get("retry-after", "")) from error
    except (HTTPError, TimeoutError) as error:
        why = f"{what}: the hub does not answer: {str(error) or type(error).__name__}"
        raise Driver(why, reason="HubUnreachable") from error


def status(code: int, what: str, retry_after: str) -> Driver:
    """Say what a hub's status means."""
    wait = f"; it asks to wait {retry_after} s" if retry_after else ""
    words = {
        401: "the hub wants a token (401)",
        403: "the token may not read this (403)",
        404: "the hub does not have it (404)",
        429: f"the hub is asked too often (429){wait}",
    }
    if code == 429 and retry_after.isdigit():
        _tell({"retry_after": int(retry_after)})
    reasons = {401: "HubDenied", 403: "HubDenied", 404: "HubNotFound", 429: "HubBusy"}
    return Driver(f"{what}: {words.get(code, f'the hub answers {code}')}", reason=reasons.get(code, "HubUnreachable"))


def _stem(name: str) -> str:
    """A GGUF model without the number of its shard."""
    head, found, _ = name.removesuffix(".gguf").rpartition("-of-")
    return head.rpartition("-")[0] if found else name.removesuffix(".gguf")


def _like(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _tell(line: dict[str, int] | dict[str, str]) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


def main() -> int:
    """Read a job, do it, tell the end."""
    try:
        path = run(msgspec.json.decode(sys.stdin.buffer.read(), type=Job))
    except Driver as error:
        _tell({"error": str(error), "reason": error.reason})
        return 1
    except Invalid as error:
        _tell({"error": str(error), "reason": "NothingToFetch"})
        return 1
    except (msgspec.MsgspecError, OSError) as error:
        _tell({"error": str(error)})
        return 1
    _tell({"path": str(path)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
