"""The access log: what stands in it, how it turns over, and what a disk without room costs."""

import os
import pty
from pathlib import Path

import msgspec
import pytest

from stoker.facts.door import AccessLog
from stoker.facts.ending import Outcome
from stoker.facts.probe import CALLER
from stoker.facts.record import Record, Times, Tokens
from stoker.gateway.door.journal import Journal

RECORD = Record(
    id="gateway-0-aa-1",
    request_id="r-1",
    at=1_700_000_000.25,
    caller="ann",
    key_id="k-1",
    service="default/tiny",
    model='a"b',
    path="/v1/chat/completions",
    dialect="chat",
    status=200,
    outcome=Outcome.COMPLETE,
    tokens=Tokens(prompt=5, output=2),
    times=Times(total=1.5),
    blocks=("h1",),
    session="s",
)


def lines(path: Path) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def write(journal: Journal, count: int = 1) -> None:
    for _ in range(count):
        journal.add(RECORD, "192.0.2.1")
    journal.write(journal.take())


def test_a_line_says_who_what_and_how_it_ended(tmp_path: Path) -> None:
    journal = Journal(AccessLog(), tmp_path / "logs" / "access-0.log")
    journal.add(msgspec.structs.replace(RECORD, caller=CALLER), "")
    write(journal)
    journal.close()
    (line,) = lines(tmp_path / "logs" / "access-0.log")
    assert line == {
        "at": "2023-11-14T22:13:20.250Z",
        "request_id": "r-1",
        "client": "192.0.2.1",
        "caller": "ann",
        "key_id": "k-1",
        "service": "default/tiny",
        "model": 'a"b',
        "dialect": "chat",
        "path": "/v1/chat/completions",
        "status": 200,
        "outcome": "complete",
        "queue_seconds": 0.0,
        "first_byte_seconds": 0.0,
        "first_token_seconds": 0.0,
        "total_seconds": 1.5,
        "prompt_tokens": 5,
        "output_tokens": 2,
    }
    assert (tmp_path / "logs" / "access-0.log").stat().st_mode & 0o777 == 0o600


def test_it_turns_over_by_size_and_keeps_so_many(tmp_path: Path) -> None:
    path = tmp_path / "access-0.log"
    for start in range(2):  # the second time as a worker that starts anew
        journal = Journal(AccessLog(max_bytes=2000, keep=2), path)
        for _ in range(12):
            write(journal, 3)
        journal.close()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["access-0.log", "access-0.log.1", "access-0.log.2"], start
        assert all(p.stat().st_size <= 2000 for p in tmp_path.iterdir())
        assert all(len(lines(p)) >= 3 for p in tmp_path.iterdir())


def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    journal = Journal(AccessLog(), tmp_path / "access-0.log")
    write(journal)
    os.close(journal._file)
    journal._file = os.open("/dev/full", os.O_WRONLY)
    write(journal, 4)
    assert (journal.lost, journal.problem) == (4, "access log: No space left on device")
    os.close(journal._file)
    journal._file = os.open(tmp_path / "access-0.log", os.O_WRONLY | os.O_APPEND)
    write(journal, 2)
    assert (journal.lost, journal.problem) == (4, "")
    assert len(lines(tmp_path / "access-0.log")) == 3


def test_a_folder_that_cannot_be_written_is_a_problem_that_heals(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"a file in the way")
    journal = Journal(AccessLog(), tmp_path / "logs" / "access-0.log")
    write(journal)
    assert journal.lost == 1
    assert journal.problem
    (tmp_path / "logs").unlink()
    write(journal)
    assert (journal.lost, journal.problem) == (1, "")


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    """The disk hangs: no thread comes to take the lines."""
    journal = Journal(AccessLog(), tmp_path / "access-0.log")
    big = msgspec.structs.replace(RECORD, model="m" * 100_000)
    for _ in range(100):
        journal.add(big, "")
    assert journal._waiting_bytes < 5 << 20
    assert journal.lost == 100 - len(journal._waiting) > 0


def test_half_a_line_does_not_spoil_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "access-0.log"
    journal = Journal(AccessLog(), path)
    write(journal)
    real = os.write
    calls = iter([lambda fd, data: real(fd, data[:20])])

    def failing(fd: int, data: bytes) -> int:
        step = next(calls, None)
        if step is None:
            raise OSError(28, "No space left on device")
        return step(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", failing)
        write(journal)
    write(journal)
    whole = [line for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert len(whole) == 2
    assert all(msgspec.json.decode(line)["caller"] == "ann" for line in whole)


def test_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setattr("stoker.gateway.door.journal._STDOUT", theirs)
    journal = Journal(AccessLog(stdout=True), tmp_path / "access-0.log")
    write(journal)
    journal.close()
    assert b'"caller":"ann"' in os.read(ours, 4096)
    os.close(theirs)
    os.close(ours)
    assert list(tmp_path.iterdir()) == []
