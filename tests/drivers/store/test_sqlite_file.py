"""What happens to the file: damage is told and never papered over, kills leave it whole, backups come back."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.base.errors import Conflict, Driver
from stoker.drivers.store import database, sqlite
from stoker.drivers.store.base import Resource
from stoker.drivers.store.sqlite import MIGRATIONS, SqliteStore

pytestmark = pytest.mark.anyio

WRITER = """
import asyncio, sys
from pathlib import Path
from stoker.drivers.store.base import Resource
from stoker.drivers.store.sqlite import SqliteStore

async def main() -> None:
    store = SqliteStore(Path(sys.argv[1]))
    for number in range(10**6):
        pair = [Resource(kind="Thing", name=name, spec={"number": number}) for name in ("a", "b")]
        await store.apply(pair, actor="me")
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    async def fill(path: Path) -> None:
        store = SqliteStore(path)
        await store.apply(
            [Resource(kind="Thing", name=f"t{number}", spec={"text": "x" * 300}) for number in range(50)], actor="me"
        )
        await store.close()

    asyncio.run(fill(tmp_path / "state.db"))
    return tmp_path / "state.db"


@pytest.mark.parametrize("damage", ["empty", "text", "middle", "cut"])
def test_a_damaged_file_is_told_and_left_as_it_is(path: Path, damage: str) -> None:
    data = path.read_bytes()
    bad = {
        "empty": b"",
        "text": b"this is not a database\n" * 50,
        "middle": data[:4096] + b"\xff" * 8192 + data[12288:],
        "cut": data[: len(data) // 2],
    }[damage]
    path.write_bytes(bad)

    with pytest.raises(Driver, match="stoker restore"):
        SqliteStore(path)

    assert path.read_bytes() == bad


def test_a_newer_schema_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")

    with pytest.raises(Driver, match="newer Stoker"):
        SqliteStore(path)


async def test_only_one_process_has_it(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(Conflict, match="in use by another process"):
        SqliteStore(path)
    with pytest.raises(Conflict, match="in use by another process"):
        database.restore(path, path)
    await store.close()
    await SqliteStore(path).close()


async def test_a_backup_of_a_running_store_comes_back_as_it_was(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    before = await store.get("Thing", "", "t1")
    await store.backup(tmp_path / "copy.db")
    await store.delete("Thing", "", "t1", actor="me")
    known = (await store.apply([Resource(kind="Thing", name="later")], actor="me"))[0].resource_version
    await store.close()

    kept = sqlite.restore(tmp_path / "copy.db", path)

    assert kept is not None
    with sqlite3.connect(kept) as before_restore:
        assert before_restore.execute("SELECT count(*) FROM resources WHERE name = 'later'").fetchone() == (1,)
    back = SqliteStore(path)
    assert await back.get("Thing", "", "t1") == before
    assert [r.name for r in await back.list("Thing") if r.name == "later"] == []
    with pytest.raises(Conflict, match="list again"):
        await anext(back.watch(since=known))
    await back.close()


def test_a_damaged_backup_does_not_replace_a_good_store(path: Path, tmp_path: Path) -> None:
    good = path.read_bytes()
    (tmp_path / "bad.db").write_bytes(b"no database" * 100)

    with pytest.raises(Driver, match="damaged"):
        database.restore(tmp_path / "bad.db", path)

    assert path.read_bytes() == good
    with pytest.raises(Driver, match="does not exist"):
        database.restore(tmp_path / "absent.db", path)


def test_a_migration_keeps_the_file_from_before_it(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "laterschema"
    package.mkdir()
    first = database.resources.files(MIGRATIONS).joinpath("0001.sql").read_text()
    (package / "0001.sql").write_text(first)
    (package / "0002.sql").write_text("CREATE TABLE more (x INTEGER);")
    monkeypatch.syspath_prepend(tmp_path)

    database.open_database(path, "laterschema").close()

    with sqlite3.connect(path) as new, sqlite3.connect(path.with_name("state.db.before-0002")) as old:
        assert new.execute("PRAGMA user_version").fetchone() == (2,)
        assert new.execute("SELECT count(*) FROM more").fetchone() == (0,)
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
        assert old.execute("SELECT count(*) FROM resources").fetchone() == (50,)


def look(path: Path) -> list[Resource]:
    """Open the store anew and read it."""

    async def read() -> list[Resource]:
        store = SqliteStore(path)
        try:
            return list(await store.list("Thing"))
        finally:
            await store.close()

    return asyncio.run(read())


@pytest.mark.e2e
def test_kill_9_in_the_middle_of_writes_keeps_sets_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for lines in (1, 5, 20):
        child = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        acknowledged = [child.stdout.readline() for _ in range(lines)]
        os.kill(child.pid, signal.SIGKILL)
        acknowledged += child.stdout.readlines()
        child.wait()

        (number,) = {thing.spec["number"] for thing in look(path)}

        assert isinstance(number, int)
        assert number >= int([line for line in acknowledged if line.endswith("\n")][-1])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", tmp_path], check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


async def test_a_full_disk_fails_the_write_and_keeps_the_state(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "state.db")
    written, full = 0, ""
    while not full:
        try:
            await store.apply([Resource(kind="Thing", name=f"t{written}", spec={"text": "x" * 20_000})], actor="me")
            written += 1
        except Driver as error:
            full = str(error)

    kept = await store.list("Thing")
    await store.close()
    again = SqliteStore(small_disk / "state.db")

    assert "full" in full or "I/O" in full
    assert len(kept) == written
    assert await again.list("Thing") == kept
    await again.close()
