"""Who used what? Records from the spool, summed by hour as they come in.

1. A record is inserted once, by its id; its sums and the offset in its segment change in the same transaction.
2. At most ``BATCH`` records a transaction: nobody waits long for the file.
3. A segment goes when nobody writes to it and everything in it is here. A damaged one is kept aside and reported, and
   what can be read behind the damage is taken in.
4. A damaged or full ledger raises Driver; it never stops control, and the spool keeps what is not in it yet.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Invalid
from stoker.base.json import JsonObject
from stoker.drivers import spool
from stoker.drivers.spool import Batch
from stoker.drivers.store import database
from stoker.facts import probe
from stoker.facts.record import Record

MIGRATIONS: Final = "stoker.drivers.ledger.sql"
GROUPS: Final = ("caller", "service", "model", "outcome", "hour", "day")
BATCH: Final = 500
HOUR: Final = 3600

_COLUMNS: Final = {
    **{name: name for name in ("caller", "service", "model", "outcome", "hour")},
    "day": "hour - hour % 86400",
}
_SUMS: Final = (
    "sum(requests) AS requests, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,"
    " sum(reasoning_tokens) AS reasoning_tokens, sum(output_tokens) AS output_tokens,"
    " sum(estimated_requests) AS estimated_requests, sum(seconds) AS seconds, sum(price_usd) AS price_usd"
)
_ADD: Final = (
    "INSERT INTO hours VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET requests = requests + 1, prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
    " cached_tokens = cached_tokens + excluded.cached_tokens,"
    " reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,"
    " output_tokens = output_tokens + excluded.output_tokens,"
    " estimated_requests = estimated_requests + excluded.estimated_requests,"
    " seconds = seconds + excluded.seconds, price_usd = price_usd + excluded.price_usd"
)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


class Ledger:
    """One ledger file. Opened at first use, so that a damaged one stops nobody; callers use it from threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def ingest(self, folder: Path) -> int:
        """Take in what lies in the spool, and tell how many records were new."""
        with self._open() as db:
            taken = sum(self._segment(db, path) for path in sorted(folder.glob(f"*{spool.SUFFIX}")))
        _clear_reserves(folder)
        return taken

    def usage(self, by: Sequence[str], *, since: float = 0.0, until: float = 1e11) -> list[JsonObject]:
        """Sum by some of GROUPS, from the hour of ``since`` on; the controller's own probes are left out."""
        if unknown := [name for name in by if name not in GROUPS]:
            raise Invalid(f"usage cannot be grouped by '{unknown[0]}'; by {', '.join(GROUPS)}")
        columns = "".join(f"{_COLUMNS[name]} AS {name}, " for name in by)
        group = f" GROUP BY {', '.join(str(at + 1) for at in range(len(by)))}" if by else ""
        order = f" ORDER BY {', '.join(str(at + 1) for at in range(len(by)))}" if by else ""
        query = f"SELECT {columns}{_SUMS} FROM hours WHERE hour > ? AND hour < ? AND caller <> ?{group}{order}"  # noqa: S608 - names of ours
        with self._open() as db:
            found = db.execute(query, (since - HOUR, until, probe.CALLER))
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found if row[len(by)] is not None]

    def records(
        self, *, since: float = 0.0, caller: str = "", service: str = "", outcome: str = "", limit: int = 100
    ) -> list[Record]:
        """Read the newest records that fit, oldest of them first."""
        query = (
            "SELECT body FROM records WHERE at >= ? AND ? IN ('', caller) AND ? IN ('', service) AND ? IN ('', outcome)"
            " ORDER BY at DESC, id DESC LIMIT ?"
        )
        with self._open() as db:
            rows = db.execute(query, (since, caller, service, outcome, limit)).fetchall()
        return [_decode(body) for (body,) in reversed(rows)]

    def sessions(self, *, since: float = 0.0, limit: int = 50) -> list[tuple[str, list[Record]]]:
        """Read the sessions that were active last, the newest first, each with its requests in the order of time."""
        query = (
            "SELECT session FROM records WHERE session IS NOT NULL AND at >= ?"
            " GROUP BY session ORDER BY max(at) DESC LIMIT ?"
        )
        with self._open() as db:
            names = [str(name) for (name,) in db.execute(query, (since, limit))]
        return [(name, self.session(name)) for name in names]

    def session(self, name: str) -> list[Record]:
        """Read the requests of one session, in the order of time; ``name`` may be the beginning of its hash."""
        query = (
            "SELECT body FROM records WHERE session IS NOT NULL AND session >= ? AND session < ?"
            " ORDER BY at, id LIMIT 5000"
        )
        with self._open() as db:
            return [_decode(body) for (body,) in db.execute(query, (name, f"{name}g"))]  # behind every hex digit

    def damage(self) -> list[str]:
        """Tell what could not be read, oldest first."""
        with self._open() as db:
            rows = db.execute("SELECT segment, message FROM damage ORDER BY rowid")
            return [f"{segment}: {message}" for segment, message in rows]

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock, database.told(self._path):
            if self._db is None:
                self._db = database.open_database(self._path, MIGRATIONS, any_thread=True)
            yield self._db

    def _segment(self, db: sqlite3.Connection, path: Path) -> int:
        """Read one segment to its end, a batch a transaction; remove it when it is done with."""
        finished = spool.closed(path)  # asked before reading: what is written after this look is found at the next
        row = db.execute("SELECT offset FROM segments WHERE name = ?", (path.name,)).fetchone()
        offset, taken = (row[0] if row else 0), 0
        while True:
            batch = spool.read(path, offset, limit=BATCH)
            if batch.records or (finished and (batch.corrupt or batch.torn)):
                taken += self._take(db, path, batch, finished=finished)
            after = batch.resume_offset if finished and batch.corrupt else batch.next_offset
            if after == offset or batch.torn:
                break
            offset = after
        if finished:
            self._retire(db, path)
        return taken

    def _take(self, db: sqlite3.Connection, path: Path, batch: Batch, *, finished: bool) -> int:
        """Insert a batch with its sums and the new offset, all or nothing."""
        offset = batch.next_offset
        db.execute("BEGIN IMMEDIATE")
        try:
            taken = sum(_insert(db, record) for record in batch.records)
            if finished and (batch.corrupt or batch.torn):
                note = batch.corrupt or f"the last {path.stat().st_size - offset} bytes are half a record"
                db.execute("INSERT INTO damage VALUES (?, ?, ?)", (clock.now(), path.name, note))
                offset = batch.resume_offset or offset
            db.execute("INSERT OR REPLACE INTO segments VALUES (?, ?)", (path.name, offset))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return taken

    def _retire(self, db: sqlite3.Connection, path: Path) -> None:
        """Remove a segment, or keep it aside when it is damaged; only then may its row go."""
        (damaged,) = db.execute("SELECT count(*) FROM damage WHERE segment = ?", (path.name,)).fetchone()
        if damaged:
            path.rename(path.with_suffix(".damaged"))
        else:
            path.unlink()
        db.execute("DELETE FROM segments WHERE name = ?", (path.name,))


def _insert(db: sqlite3.Connection, record: Record) -> int:
    """Insert a record and its sums, unless it is here already."""
    row = (record.id, record.at, record.caller, record.service, record.model, str(record.outcome), _encode(record))
    if not db.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row).rowcount:
        return 0
    tokens = record.tokens
    counts = (tokens.prompt, tokens.cached, tokens.reasoning, tokens.output, int(tokens.estimated))
    group = (int(record.at // HOUR) * HOUR, record.caller, record.service, record.model, str(record.outcome))
    db.execute(_ADD, (*group, *counts, record.times.total, record.price_usd or 0.0))
    return 1


def _clear_reserves(folder: Path) -> None:
    """Remove the reserves of workers that are gone: a worker that lives holds the lock of a segment of its own."""
    for path in folder.glob("*.reserve*"):
        boot = path.name.partition(".reserve")[0]
        if all(spool.closed(each) for each in folder.glob(f"{boot}-*{spool.SUFFIX}")):
            path.unlink(missing_ok=True)
