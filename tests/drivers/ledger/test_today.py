"""What was used today is known whether it lies in the ledger, in the spool, or is on its way between them."""

import threading
from pathlib import Path

import msgspec
import pytest

from stoker.base.errors import Driver
from stoker.drivers.ledger import today
from stoker.drivers.ledger.sqlite import Ledger
from stoker.drivers.spool import Spool
from stoker.facts.record import Record, Tokens

DAY = 20_000
NOON = (DAY + 0.5) * 86400


def record(number: int, **changes: object) -> Record:
    made = Record(
        id=f"boot-{number}", at=NOON, caller="ann", service="ns/chat", tokens=Tokens(prompt=10, output=5, cached=9)
    )
    return msgspec.structs.replace(made, **changes)


def used(folder: Path, day: int = DAY) -> dict[tuple[str, str], int]:
    found = today.used(folder / "ledger.db", folder / "spool", day=day)
    return {(caller, service): tokens for caller, service, tokens in found}


def test_ledger_and_spool_add_up_without_counting_twice(tmp_path: Path) -> None:
    assert used(tmp_path) == {}
    spool, ledger = Spool(tmp_path / "spool", "boot"), Ledger(tmp_path / "ledger.db")
    for number in range(10):
        spool.append(record(number))
    assert used(tmp_path) == {("ann", "ns/chat"): 150}  # no ledger yet
    ledger.ingest(tmp_path / "spool")
    for number in range(10, 14):
        spool.append(record(number))
    spool.append(record(20, caller="stoker:probe"))
    spool.append(record(21, at=NOON - 86400))
    spool.append(record(22, caller="bob", service="ns/other"))

    want = {("ann", "ns/chat"): 14 * 15, ("bob", "ns/other"): 15}
    assert used(tmp_path) == want
    spool.close()
    ledger.ingest(tmp_path / "spool")
    assert not list((tmp_path / "spool").glob("*.seg"))
    assert used(tmp_path) == want
    assert used(tmp_path, DAY - 1) == {("ann", "ns/chat"): 15}


def test_what_moves_into_the_ledger_meanwhile_is_counted_once(tmp_path: Path) -> None:
    """Segments are written, taken in and removed while others ask: no answer may be too low or too high."""
    ledger, over, written = Ledger(tmp_path / "ledger.db"), threading.Event(), [0]

    def work() -> None:
        for boot in range(30):
            spool = Spool(tmp_path / "spool", f"b{boot}", reserve_bytes=4096)
            for number in range(20):
                spool.append(record(0, id=f"{boot}-{number}"))
                written[0] += 15
            spool.close()
            ledger.ingest(tmp_path / "spool")
        over.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not over.is_set():
        before = written[0]
        seen = used(tmp_path).get(("ann", "ns/chat"), 0)
        assert before <= seen <= written[0] + 15
    worker.join()
    assert used(tmp_path) == {("ann", "ns/chat"): 30 * 20 * 15}


def test_a_damaged_ledger_is_told(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"nothing that SQLite knows" * 500)
    with pytest.raises(Driver, match="damaged"):
        used(tmp_path)
