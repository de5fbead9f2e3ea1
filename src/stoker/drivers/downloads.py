"""Fetch model files in a child process, so that the libraries it needs never swell the controller.

The child is ``python -m stoker.drivers.hub``: it reads one job from standard input and writes a line of JSON per step.
What is complete lies under ``hub/<repo>/<commit>`` or ``url/<hash>`` with a marker file; nothing else counts.
"""

import asyncio
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Driver

MARKER: Final = ".stoker.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """What to fetch. ``sha256`` holds (file name, digest) pairs; an empty name means the only file."""

    folder: Path
    repo: str = ""
    revision: str = ""
    url: str = ""
    endpoint: str = ""
    token_file: str = ""
    include: tuple[str, ...] = ()
    sha256: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Progress:
    """How far a fetch is, in bytes, and how long it must rest when it failed."""

    done: int = 0
    total: int = 0
    retry_after: float = 0.0  # seconds that the hub asks to wait


class _Line(msgspec.Struct, frozen=True):
    """One line of the child."""

    done: int = 0
    total: int = 0
    path: str = ""
    error: str = ""
    reason: str = ""
    retry_after: float = 0.0


def place(folder: Path, *, repo: str = "", url: str = "") -> Path:
    """The folder that holds the revisions of a repository, or the file of a URL."""
    if url:
        return folder / "url" / hashlib.sha256(url.encode()).hexdigest()[:16]
    owner, _, name = repo.rpartition("/")
    return folder / "hub" / (owner or "_") / name


def find(folder: Path, repo: str, revision: str, url: str) -> Path | None:
    """Where complete files lie: of this revision, or of the newest one when none is named."""
    if url:
        whole = place(folder, url=url)
        return whole if (whole / MARKER).exists() else None
    if not repo:
        return None
    markers = sorted(place(folder, repo=repo).glob(f"*/{MARKER}"), key=lambda p: p.stat().st_mtime)
    here = [marker.parent for marker in markers]
    if not revision:
        return here[-1] if here else None
    for path in reversed(here):
        told = msgspec.json.decode((path / MARKER).read_bytes(), type=dict[str, object])
        if path.name.startswith(revision) or told.get("revision") == revision:
            return path
    return None


async def fetch(download: Download, *, progress: Progress) -> Path:
    """Fetch and return where the files lie. Raises Driver with what stood in the way."""
    job = msgspec.json.encode(
        {
            "folder": str(download.folder),
            "repo": download.repo,
            "revision": download.revision,
            "url": download.url,
            "endpoint": download.endpoint,
            "token_file": download.token_file,
            "include": list(download.include),
            "sha256": [list(pair) for pair in download.sha256],
        }
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stoker.drivers.hub",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        return await _follow(child, job, progress)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _follow(child: asyncio.subprocess.Process, job: bytes, progress: Progress) -> Path:
    if child.stdin is None or child.stdout is None:
        raise Driver("the fetching process has no pipes")
    child.stdin.write(job)
    child.stdin.close()
    line = _Line()
    async for text in child.stdout:
        line = msgspec.json.decode(text, type=_Line)
        progress.done, progress.total = line.done or progress.done, line.total or progress.total
        progress.retry_after = line.retry_after or progress.retry_after
    code = await child.wait()
    if line.path:
        return Path(line.path)
    raise Driver(line.error or f"the fetching process ended with {code} and said nothing", reason=line.reason)
