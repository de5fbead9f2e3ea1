"""Slots, limits and the live slot: over workers, over deaths, and whatever half-written state a kill leaves."""

import contextlib
import multiprocessing
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from stoker.base.errors import Driver
from stoker.decide.quota.level import Demand
from stoker.drivers import live
from stoker.drivers.limits.table import Table
from stoker.drivers.live import Slot
from stoker.drivers.slots import Slots
from stoker.facts.live import EndpointLoad, InFlight, Live
from stoker.facts.routes import Limits


def test_slots_are_shared_and_a_dead_workers_are_free_again(tmp_path: Path) -> None:
    one, two = Slots(tmp_path / "slots", 0), Slots(tmp_path / "slots", 1)

    assert [one.take("e", 3), two.take("e", 3), one.take("e", 3), two.take("e", 3)] == [True, True, True, False]
    assert (one.taken("e"), two.taken("e"), one.taken("other")) == (3, 3, 0)
    one.give("e")
    assert two.take("e", 3)
    reborn = Slots(tmp_path / "slots", 1)  # worker 1 was killed and replaced
    assert reborn.taken("e") == 1
    reborn.give("e")
    assert reborn.taken("e") == 1  # giving back what one does not hold changes nothing
    with pytest.raises(Driver):
        Slots(tmp_path / "slots", 99)


def _hammer(path: Path, worker: int, rounds: int) -> None:
    slots = Slots(path, worker)
    for _ in range(rounds):
        if slots.take("e", 2):
            if slots.taken("e") > 2:
                os._exit(1)
            slots.give("e")
    os._exit(0)


@pytest.mark.e2e
def test_workers_never_exceed_a_limit_together(tmp_path: Path) -> None:
    Slots(tmp_path / "slots", 0).close()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_hammer, args=(tmp_path / "slots", n, 4000)) for n in range(1, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(40)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]


def state(**fields: object) -> Live:
    return Live(worker="w", pid=1, at=1.0, endpoints=(EndpointLoad(name="e", incarnation="i"),), **fields)  # type: ignore[arg-type]


def test_live_slot_is_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "run" / "gateway-0.live"
    assert live.read(path) is None
    slot = Slot(path)
    assert live.read(path) is None
    for generation in (1, 2, 3):
        slot.write(state(routes_generation=generation))
        seen = live.read(path)
        assert seen is not None
        assert seen.routes_generation == generation
    rows = [slot.begin(InFlight(id=f"r{n}", at=float(n))) for n in range(3)]
    slot.end(rows[1])
    slot.end(-1)
    seen = live.read(path)
    assert seen is not None
    assert [request.id for request in seen.in_flight] == ["r0", "r2"]
    assert slot.begin(InFlight(id="again", at=1.0, model="m" * 900, caller="c")) == rows[1]
    seen = live.read(path)
    assert seen is not None
    assert [request.id for request in seen.in_flight] == ["r0", "again", "r2"]


def test_half_written_state_falls_back_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "live"
    slot = Slot(path)
    slot.write(state(routes_generation=1))
    slot.write(state(routes_generation=2))
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<Q", 2), 4096)
    data[at + 20] ^= 0xFF
    path.write_bytes(data)

    seen = live.read(path)
    assert seen is not None
    assert seen.routes_generation == 1
    path.write_bytes(b"no such thing")
    assert live.read(path) is None


def _work(path: Path) -> None:
    slot = Slot(path)
    slot.write(state())
    count = 0
    while True:
        slot.end(slot.begin(InFlight(id=f"r{count}", at=1.0)))
        slot.begin(InFlight(id=f"kept{count}", at=1.0)) if count < 3 else None
        count += 1


@pytest.mark.e2e
def test_live_slot_survives_kill(tmp_path: Path) -> None:
    path = tmp_path / "live"
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(path,))
    process.start()
    while (seen := live.read(path)) is None or len(seen.in_flight) < 3:
        assert process.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)

    seen = live.read(path)
    assert seen is not None
    assert {"kept0", "kept1", "kept2"} <= {request.id for request in seen.in_flight}
    assert len(seen.in_flight) <= 4


def _serve_on_a_full_disk(folder: Path, ready: Path) -> None:
    """A worker's tables and slot were made while there was room; then the disk fills and traffic comes."""
    slot, slots, limits = Slot(folder / "w.live"), Slots(folder / "slots", 0), Table(folder / "limits", 0)
    (folder / "filler").touch()
    with (folder / "filler").open("r+b", buffering=0) as filler:
        for size in (1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))
    rows = [slot.begin(InFlight(id=f"w-{number}", at=1.0)) for number in range(live.ROWS)]
    for name in range(200):
        slots.take(f"e{name}", 3)
        demand = Demand(f"c{name}", Limits(requests_per_minute=2), "")
        limits.reserve((demand,), tokens=0, now=1000.0)
    slot.write(Live(worker="w", pid=1, at=1.0))
    with pytest.raises(Driver):
        slot.write(Live(worker="w", pid=1, at=2.0, routes_error="x" * 500_000))
    for row in rows:
        slot.end(row)
    ready.write_text(str(sum(row >= 0 for row in rows)))
    slot.begin(InFlight(id="w-last", at=2.0))
    os._exit(0)


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own needs root (tmpfs)")
def test_a_full_disk_kills_no_worker_that_has_its_files_mapped(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=True)
    try:
        context = multiprocessing.get_context("spawn")
        worker = context.Process(target=_serve_on_a_full_disk, args=(small, tmp_path / "rows"))
        worker.start()
        worker.join(40)
        state = live.read(small / "w.live")
    finally:
        subprocess.run(["umount", "-l", small], check=True)

    assert worker.exitcode == 0  # not SIGBUS
    assert int((tmp_path / "rows").read_text()) >= 1024
    assert state is not None
    assert [request.id for request in state.in_flight] == ["w-last"]


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system of its own needs root (tmpfs)")
def test_a_worker_starts_on_a_full_disk_and_its_notes_reach_it_once_there_is_room(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=True)
    try:
        filler = small / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        slot = Slot(small / "w.live")
        rows = [slot.begin(InFlight(id=f"w-{number}", at=1.0)) for number in range(3)]
        slot.end(rows[1])
        with pytest.raises(Driver, match="cannot be written"):
            slot.write(Live(worker="w", pid=1, at=1.0))
        assert live.read(small / "w.live") is None
        filler.unlink()
        slot.write(Live(worker="w", pid=1, at=2.0))
        state = live.read(small / "w.live")
        slot.close()
    finally:
        subprocess.run(["umount", "-l", small], check=True)

    assert state is not None
    assert state.at == 2.0
    assert sorted(request.id for request in state.in_flight) == ["w-0", "w-2"]
