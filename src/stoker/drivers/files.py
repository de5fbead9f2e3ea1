"""Small files that must be whole or absent: secrets, snapshots, tokens."""

import os
import secrets
from pathlib import Path

from stoker.base.errors import Driver


def replace(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write a file so that a reader sees the old or the new one, also after a power cut. Raises Driver."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise Driver(f"cannot write {path}: {error.strerror or error}") from error


def secret(path: Path, *, size: int = 32) -> str:
    """Read a secret, or make one that only this user can read. Raises Driver."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        replace(path, secrets.token_urlsafe(size).encode())
        return path.read_text().strip()
    except OSError as error:
        raise Driver(f"cannot read {path}: {error.strerror or error}") from error


def read(path: Path) -> bytes | None:
    """Read a file, or None where there is none. Raises Driver for anything else."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Driver(f"cannot read {path}: {error.strerror or error}") from error


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Tell one state of a file from another without reading it; None where there is none. Raises Driver."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Driver(f"cannot look at {path}: {error.strerror or error}") from error
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
