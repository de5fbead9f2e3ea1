"""Open, check, migrate, back up and restore a SQLite file of ours.

1. A file that is damaged, empty or from a newer Stoker is a clear error; it is never made anew in silence.
2. A new file gets its final name only when it is complete, so a kill in between leaves none.
3. One process at a time, by a lock file that goes with the process.
"""

import contextlib
import fcntl
import os
import sqlite3
import uuid
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from stoker.base.errors import Conflict, Driver

_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA foreign_keys=ON", "PRAGMA busy_timeout=5000")
_LOG_BYTES = 1100 * (4096 + 24)  # a checkpoint comes after 1000 pages, each with its head


def lock(path: Path) -> int:
    """Claim a database for this process; raises Conflict when another one has it. Close the descriptor to let go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise Conflict(f"{path} is in use by another process; stop it first") from error
    return fd


def open_database(path: Path, migrations: str, *, any_thread: bool = False) -> sqlite3.Connection:
    """Open, check and migrate; ``migrations`` is the package folder of the numbered SQL files.

    With ``any_thread`` the caller sees to it that one thread at a time uses the connection.
    """
    with told(path):
        if not path.exists():
            _create(path, migrations)
        elif path.stat().st_size == 0:
            raise sqlite3.DatabaseError("the file is empty")
        connection = _connect(path, any_thread=any_thread)
        check(connection)
        _migrate(connection, path, migrations)
        return connection


def check(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError when the file is damaged."""
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(answer)


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into words for a person, with the way out."""
    try:
        yield
    except sqlite3.OperationalError as error:  # a subclass: full, locked, not writable
        raise Driver(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Driver(
            f"{path} is damaged: {error}. Nothing was changed. Restore a backup with 'stoker restore FILE', "
            f"or move the file away to start empty"
        ) from error
    except OSError as error:
        raise Driver(f"{path}: {error}") from error


def reserve(path: Path) -> None:
    """Own the blocks of an open database's log before they are needed, so that a full disk stops no small write.

    SQLite writes each commit to the log first, and begins it again from its start after a checkpoint. What was not in
    use reads as the end of the log. Where there is no room now, the database works as it would without.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path.with_name(path.name + "-wal"), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, _LOG_BYTES)
        finally:
            os.close(fd)


def backup(source: Path, target: Path) -> None:
    """Copy a database that may be in use, in a consistent state, and check the copy before it gets its name."""
    if not source.exists():
        raise Driver(f"{source} does not exist: there is nothing to back up")
    part = target.with_name(target.name + ".part")
    with told(source):
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(part)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")  # one file: nothing beside it belongs to it
            check(new)
        _place(part, target)


def restore(source: Path, target: Path) -> Path | None:
    """Put a backup in the place of a database; raises Conflict while that is in use.

    What was there, damaged or not, is kept beside it and returned. The history gets a new name: a watcher that knew
    the old one is told to list again.
    """
    if not source.exists():
        raise Driver(f"{source} does not exist")
    held = lock(target)
    try:
        part = target.with_name(target.name + ".part")
        with told(source):
            backup(source, part)
            with contextlib.closing(sqlite3.connect(part)) as connection:
                connection.execute("UPDATE meta SET epoch = ?", (uuid.uuid4().hex[:8],))
                connection.commit()
        with told(target):
            kept = _set_aside(target)
            _place(part, target)
        return kept
    finally:
        os.close(held)


def _set_aside(path: Path) -> Path | None:
    """Move a database away with its log files: replayed onto another one they would ruin it."""
    if not path.exists():
        return None
    number = 1 + sum(1 for _ in path.parent.glob(f"{path.name}.replaced-????"))
    kept = path.with_name(f"{path.name}.replaced-{number:04d}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(kept.with_name(kept.name + suffix))
    return kept


def _create(path: Path, migrations: str) -> None:
    part = path.with_name(path.name + ".part")
    for leftover in (part, part.with_name(part.name + "-wal"), part.with_name(part.name + "-shm")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(part)) as connection:
        _migrate(connection, part, migrations)
    _place(part, path)


def _connect(path: Path, *, any_thread: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=not any_thread)
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    return connection


def _migrate(connection: sqlite3.Connection, path: Path, migrations: str) -> None:
    (done,) = connection.execute("PRAGMA user_version").fetchone()
    files = sorted(file.name for file in resources.files(migrations).iterdir() if file.name.endswith(".sql"))
    if done > len(files):
        raise Driver(f"{path} was written by a newer Stoker (schema {done}; this one knows {len(files)}): upgrade")
    if 0 < done < len(files):
        backup(path, path.with_name(f"{path.name}.before-{done + 1:04d}"))
    for number, name in enumerate(files[done:], start=done + 1):
        script = resources.files(migrations).joinpath(name).read_text()
        connection.executescript(f"BEGIN;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")


def _place(part: Path, target: Path) -> None:
    fd = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    part.replace(target)
    fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
