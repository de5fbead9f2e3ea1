"""Nothing appended is lost; nothing damaged is skipped in silence; a full disk refuses and recovers."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Driver
from stoker.drivers import spool
from stoker.drivers.spool import Spool
from stoker.facts.record import Record

WRITER = """
import sys
from pathlib import Path
from stoker.drivers.spool import Spool
from stoker.facts.record import Record
s = Spool(Path(sys.argv[1]), "boot", segment_bytes=20_000)
n = 0
while True:
    s.append(Record(id=f"boot-{n}", model="m" * (n % 50)))
    n += 1
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


def record(number: int) -> Record:
    return Record(id=f"boot-{number}", model="some model", status=200)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def everything(folder: Path) -> list[str]:
    return [r.id for path in segments(folder) for r in spool.read(path, limit=10**9).records]


def test_records_come_back_in_order_over_segments(tmp_path: Path) -> None:
    with_small_segments = Spool(tmp_path, "boot", segment_bytes=300, reserve_bytes=4096)
    for number in range(20):
        with_small_segments.append(record(number))

    assert with_small_segments.unsynced == 20
    assert with_small_segments.sync() == 20
    assert with_small_segments.unsynced == 0
    assert everything(tmp_path) == [f"boot-{n}" for n in range(20)]
    assert [spool.closed(p) for p in segments(tmp_path)][-2:] == [True, False]
    with_small_segments.close()
    assert all(spool.closed(p) for p in segments(tmp_path))
    assert not list(tmp_path.glob("*.reserve*"))


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    writer = Spool(tmp_path, "boot")
    for number in range(5):
        writer.append(record(number))
    (path,) = segments(tmp_path)

    first = spool.read(path, 0, limit=3)
    rest = spool.read(path, first.next_offset)

    assert [r.id for r in first.records + rest.records] == [f"boot-{n}" for n in range(5)]
    assert rest.next_offset == sum(len(spool.frame(record(n))) for n in range(5))


def test_a_cut_at_every_byte_is_a_torn_tail_and_never_a_wrong_record(tmp_path: Path) -> None:
    frames = [spool.frame(record(n)) for n in range(3)]
    data = b"".join(frames)
    ends = [sum(map(len, frames[:n])) for n in range(4)]
    path = tmp_path / "boot-000001.seg"
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        batch = spool.read(path)
        whole = sum(end <= cut for end in ends) - 1
        assert [r.id for r in batch.records] == [f"boot-{n}" for n in range(whole)]
        assert batch.next_offset == ends[whole]
        assert batch.torn == (cut != ends[whole])
        assert batch.corrupt == ""


@given(position=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_flipped_byte_never_goes_unseen(tmp_path_factory: pytest.TempPathFactory, position: int, flip: int) -> None:
    frames = [spool.frame(record(n)) for n in range(4)]
    data = bytearray(b"".join(frames))
    data[position % len(data)] ^= flip
    path = tmp_path_factory.mktemp("flip") / "boot-000001.seg"
    path.write_bytes(data)
    hit = next(n for n in range(4) if position % len(data) < sum(map(len, frames[: n + 1])))

    batch = spool.read(path)

    assert [r.id for r in batch.records] == [f"boot-{n}" for n in range(hit)]
    assert batch.corrupt or batch.torn
    if hit < 3:  # damage before a good frame is damage, not a tail
        assert batch.corrupt
        assert [r.id for r in spool.read(path, batch.resume_offset).records] == [f"boot-{n}" for n in range(hit + 1, 4)]


def test_zeros_behind_the_last_frame_are_its_end(tmp_path: Path) -> None:
    path = tmp_path / "boot-000001.seg"
    path.write_bytes(spool.frame(record(0)) + bytes(4096))

    batch = spool.read(path)

    assert (len(batch.records), batch.torn, batch.corrupt) == (1, False, "")


@pytest.fixture(params=["tmpfs", "file size limit"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder that fills up after 64 KiB: a real tmpfs for root, else a limit on the size of a file."""
    if request.param == "tmpfs":
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=False).returncode:
            pytest.skip("mounting a tmpfs needs root")
        yield tmp_path
        subprocess.run(["umount", "-l", tmp_path], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (48 << 10, hard))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(writer: Spool, start: int = 0) -> int:
    number = start
    while writer.accounting != "refusing":
        with contextlib.suppress(Driver):
            writer.append(record(number))
            number += 1
    with pytest.raises(Driver, match="accounting is unavailable"):
        writer.append(record(number))
    return number


def test_a_full_disk_uses_the_reserve_then_refuses_then_recovers(small_disk: Path) -> None:
    writer = Spool(small_disk, "boot", reserve_bytes=16 << 10)
    assert writer.accounting == "ok"
    number = 0
    while writer.accounting == "ok":
        writer.append(record(number))
        number += 1
    assert writer.accounting == "reserve"

    number = fill(writer, number)

    assert writer.accounting == "refusing"
    assert everything(small_disk) == [f"boot-{n}" for n in range(number)]
    freed = segments(small_disk)[0]
    kept = everything(small_disk)[len(spool.read(freed, limit=10**9).records) :]
    freed.unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    writer.sync()
    writer.sync()  # the first let go of the retired segment: only then was its space free
    assert writer.accounting == "ok"
    writer.append(record(number))
    assert everything(small_disk) == [*kept, f"boot-{number}"]


def test_unmetered_drops_and_counts_instead_of_refusing(small_disk: Path) -> None:
    writer = Spool(small_disk, "boot", reserve_bytes=4096, unmetered=True)
    written = 0
    while not writer.dropped:
        writer.append(record(written))
        written += not writer.dropped

    assert writer.accounting == "unmetered"
    assert everything(small_disk) == [f"boot-{n}" for n in range(written)]


def test_a_folder_that_cannot_be_written_is_a_driver_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Driver, match="cannot write the spool"):
        Spool(tmp_path / "file", "boot")


@pytest.mark.e2e
def test_kill_9_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        child = subprocess.Popen([sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(50)]
        time.sleep(0.01 * attempt)
        os.kill(child.pid, signal.SIGKILL)
        told += child.stdout.readlines()
        child.wait()
        acknowledged = int([line for line in told if line.endswith("\n")][-1])

        found = everything(folder)

        assert found == [f"boot-{n}" for n in range(len(found))]
        assert acknowledged <= len(found) <= acknowledged + 1
        assert all(spool.closed(path) for path in segments(folder))


def test_a_payload_whose_head_was_never_written_is_a_torn_tail(tmp_path: Path) -> None:
    writer = spool.Spool(tmp_path, "boot")
    writer.append(record(0))
    (path,) = segments(tmp_path)
    whole = spool.frame(record(1))
    with path.open("r+b") as file:  # what a kill between the two halves of a frame leaves
        file.seek(len(spool.frame(record(0))) + spool.HEADER.size)
        file.write(whole[spool.HEADER.size :])
    batch = spool.read(path)

    assert [r.id for r in batch.records] == ["boot-0"]
    assert batch.torn
    assert not batch.corrupt
