"""Every record once, whatever is killed, damaged or read twice; and sums that always agree with the records."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.base.errors import Driver, Invalid
from stoker.drivers import spool
from stoker.drivers.ledger import lost
from stoker.drivers.ledger.sqlite import Ledger
from stoker.drivers.spool import Spool
from stoker.facts import probe
from stoker.facts.ending import Outcome
from stoker.facts.live import InFlight, Live
from stoker.facts.record import Record, Times, Tokens

HOUR = 3600.0
INGESTER = """
import sys
from pathlib import Path
from stoker.drivers.ledger.sqlite import Ledger
while True:
    Ledger(Path(sys.argv[1])).ingest(Path(sys.argv[2]))
    print("pass", flush=True)
"""


def record(number: int, **changes: object) -> Record:
    made = Record(
        id=f"boot-{number}",
        at=10 * HOUR + number,
        caller="ann",
        service="ns/chat",
        model="chat",
        tokens=Tokens(prompt=10, output=5),
        times=Times(total=0.5),
    )
    return msgspec.structs.replace(made, **changes)


def fill(folder: Path, records: list[Record], *, boot: str = "boot", segment_bytes: int = 2000) -> Spool:
    writer = Spool(folder, boot, segment_bytes=segment_bytes, reserve_bytes=4096)
    for each in records:
        writer.append(each)
    return writer


def test_records_are_taken_in_once_and_closed_segments_go(tmp_path: Path) -> None:
    ledger, folder = Ledger(tmp_path / "ledger.db"), tmp_path / "spool"
    writer = fill(folder, [record(n) for n in range(30)])

    assert ledger.ingest(folder) == 30
    writer.sync()  # lets go of the segments that are full
    assert ledger.ingest(folder) == 0
    assert len(list(folder.glob("*.seg"))) == 1  # the open one
    writer.append(record(30))
    assert ledger.ingest(folder) == 1
    writer.close()
    assert ledger.ingest(folder) == 0
    assert list(folder.iterdir()) == []
    assert [r.id for r in ledger.records(limit=1000)] == [f"boot-{n}" for n in range(31)]
    assert ledger.damage() == []
    ledger.close()


def test_more_than_a_batch(tmp_path: Path) -> None:
    ledger, folder = Ledger(tmp_path / "ledger.db"), tmp_path / "spool"
    fill(folder, [record(n) for n in range(1201)], segment_bytes=1 << 20)

    assert ledger.ingest(folder) == 1201
    assert ledger.usage([])[0]["requests"] == 1201


def test_sums_by_caller_model_and_hour_leave_probes_out(tmp_path: Path) -> None:
    ledger, folder = Ledger(tmp_path / "ledger.db"), tmp_path / "spool"
    fill(
        folder,
        [
            record(1),
            record(2, price_usd=0.5, tokens=Tokens(prompt=1, cached=1, reasoning=2, output=3, estimated=True)),
            record(3, caller="bob", at=12 * HOUR, outcome=Outcome.CANCELLED),
            record(4, caller=probe.CALLER),
        ],
    )
    ledger.ingest(folder)

    ann, bob = ledger.usage(["caller", "model"])

    assert (ann["caller"], ann["requests"], ann["prompt_tokens"], ann["output_tokens"]) == ("ann", 2, 11, 8)
    assert (ann["cached_tokens"], ann["reasoning_tokens"], ann["estimated_requests"], ann["price_usd"]) == (
        1,
        2,
        1,
        0.5,
    )
    assert (bob["caller"], bob["requests"]) == ("bob", 1)
    assert [row["outcome"] for row in ledger.usage(["outcome"], since=11 * HOUR)] == ["cancelled"]
    assert [row["requests"] for row in ledger.usage(["hour"])] == [2, 1]
    assert [row["requests"] for row in ledger.usage(["day"], until=11 * HOUR)] == [2]
    assert ledger.usage([], since=99 * HOUR) == []
    assert [r.id for r in ledger.records(caller="bob", service="ns/chat", outcome="cancelled")] == ["boot-3"]
    assert [r.id for r in ledger.records(limit=2)] == ["boot-4", "boot-3"]
    with pytest.raises(Invalid, match="grouped by 'colour'"):
        ledger.usage(["colour"])


def test_damage_is_reported_kept_aside_and_read_around(tmp_path: Path) -> None:
    ledger, folder = Ledger(tmp_path / "ledger.db"), tmp_path / "spool"
    folder.mkdir()
    frames = [spool.frame(record(n)) for n in range(5)]
    bad = bytearray(frames[2])
    bad[20] ^= 0xFF
    (folder / "boot-000001.seg").write_bytes(b"".join([*frames[:2], bad, *frames[3:], frames[0][:9]]))

    assert ledger.ingest(folder) == 4

    assert [r.id for r in ledger.records()] == ["boot-0", "boot-1", "boot-3", "boot-4"]
    middle, tail = ledger.damage()
    assert "hold no readable record" in middle
    assert "the last 9 bytes are half a record" in tail
    assert [path.name for path in folder.iterdir()] == ["boot-000001.damaged"]
    assert ledger.ingest(folder) == 0


def test_a_torn_tail_of_a_living_worker_is_waited_for(tmp_path: Path) -> None:
    ledger, folder = Ledger(tmp_path / "ledger.db"), tmp_path / "spool"
    writer = fill(folder, [record(0)])
    (path,) = folder.glob("*.seg")
    whole = spool.frame(record(1))
    with path.open("r+b") as file:
        file.seek(len(spool.frame(record(0))))
        file.write(whole[:15])
        file.flush()
        assert ledger.ingest(folder) == 1
        file.write(whole[15:])
        file.flush()
    assert ledger.ingest(folder) == 1
    assert ledger.damage() == []
    writer.close()


@settings(max_examples=20, deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 40), max_size=20), max_size=5))
def test_doubles_over_segments_and_passes_count_once(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    home = tmp_path_factory.mktemp("ledger")
    ledger, folder = Ledger(home / "ledger.db"), home / "spool"
    folder.mkdir()
    for number, part in enumerate(parts):
        fill(folder, [record(n) for n in part], boot=f"boot{number}").close()
        ledger.ingest(folder)

    wanted = {n for part in parts for n in part}
    assert {r.id for r in ledger.records(limit=1000)} == {f"boot-{n}" for n in wanted}
    assert sum(int(str(row["requests"])) for row in ledger.usage([])) == len(wanted)
    ledger.close()


def test_a_damaged_ledger_is_told_and_the_spool_keeps_everything(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    fill(folder, [record(n) for n in range(3)]).close()
    (tmp_path / "ledger.db").write_bytes(b"garbage" * 1000)
    ledger = Ledger(tmp_path / "ledger.db")

    with pytest.raises(Driver, match="damaged"):
        ledger.ingest(folder)

    assert sum(len(spool.read(path).records) for path in folder.glob("*.seg")) == 3
    (tmp_path / "ledger.db").unlink()
    assert ledger.ingest(folder) == 3


@pytest.mark.e2e
def test_kill_9_of_the_ingester_loses_and_doubles_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    total = 0
    for attempt in range(4):
        writer = fill(folder, [record(total + n) for n in range(700)], boot=f"boot{attempt}")
        total += 700
        child = subprocess.Popen(
            [sys.executable, "-c", INGESTER, tmp_path / "ledger.db", folder], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(attempt):
            child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        writer.close()

    ledger = Ledger(tmp_path / "ledger.db")
    ledger.ingest(folder)

    assert len(ledger.records(limit=10_000)) == total
    assert ledger.usage([])[0]["requests"] == total
    ledger.close()
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_only_what_has_no_record_of_its_own_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    writer = fill(folder, [record(n) for n in range(40)])
    flying = tuple(InFlight(id=f"boot-{n}", at=5.0, caller="ann", model="chat", stream=True) for n in (3, 39, 40, 41))

    found = lost.records(Live(worker="boot", pid=1, at=6.0, in_flight=flying), folder, now=65.0)

    assert [r.id for r in found] == ["boot-40", "boot-41"]
    assert {(r.outcome, r.caller, r.model, r.stream, r.at) for r in found} == {(Outcome.LOST, "ann", "chat", True, 5.0)}
    assert found[0].detail == "found 60 s after it began"
    assert lost.records(Live(worker="boot", pid=1, at=6.0), folder, now=65.0) == []
    writer.close()
