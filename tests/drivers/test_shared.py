"""Slots, limits and the live slot: over workers, over deaths, and whatever half-written state a kill leaves."""

import contextlib
import multiprocessing
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Driver
from stoker.drivers import live
from stoker.drivers.limits import SharedLimits
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


RATE = Limits(requests_per_minute=2)
TOKENS = Limits(tokens_per_minute=100, tokens_per_day=1000)


def test_requests_per_minute_refill_steadily(tmp_path: Path) -> None:
    limits = SharedLimits(tmp_path / "limits", 0)
    asks = [limits.reserve("a", RATE, tokens=0, now=now) for now in (1000.0, 1000.0, 1000.0, 1030.0, 1030.0, 1060.0)]

    assert [refusal is None for refusal in asks] == [True, True, False, True, False, True]
    assert asks[2] is not None
    assert (asks[2].limit, asks[2].retry_after) == ("requests_per_minute", 30.0)
    assert limits.reserve("b", RATE, tokens=0, now=1060.0) is None


def test_tokens_are_settled_and_debt_waits(tmp_path: Path) -> None:
    limits = SharedLimits(tmp_path / "limits", 0)
    assert limits.reserve("a", TOKENS, tokens=10, now=1000.0) is None
    limits.settle("a", TOKENS, reserved=10, used=250, now=1000.0)
    refusal = limits.reserve("a", TOKENS, tokens=10, now=1000.0)
    assert refusal is not None
    assert refusal.limit == "tokens_per_minute"
    assert limits.reserve("a", TOKENS, tokens=10, now=1000.0 + refusal.retry_after + 0.1) is None
    limits.settle("a", TOKENS, reserved=10, used=900, now=1100.0)
    late = limits.reserve("a", TOKENS, tokens=1, now=2000.0)
    assert late is not None
    assert late.limit == "tokens_per_day"
    assert limits.reserve("a", TOKENS, tokens=1, now=86400.0 * 2) is None  # another day


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5))
def test_concurrent_is_exact(tmp_path_factory: pytest.TempPathFactory, steps: list[bool], most: int) -> None:
    limits = SharedLimits(tmp_path_factory.mktemp("limits") / "limits", 0)
    rule, running = Limits(concurrent=most), 0
    for step in steps:
        if step:
            granted = limits.reserve("a", rule, tokens=0, now=1.0) is None
            assert granted == (running < most)
            running += granted
        elif running:
            limits.settle("a", rule, reserved=0, used=0, now=1.0)
            running -= 1


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
    slot, slots, limits = Slot(folder / "w.live"), Slots(folder / "slots", 0), SharedLimits(folder / "limits", 0)
    (folder / "filler").touch()
    with (folder / "filler").open("r+b", buffering=0) as filler:
        for size in (1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))
    rows = [slot.begin(InFlight(id=f"w-{number}", at=1.0)) for number in range(live.ROWS)]
    for name in range(200):
        slots.take(f"e{name}", 3)
        limits.reserve(f"c{name}", RATE, tokens=0, now=1000.0)
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
