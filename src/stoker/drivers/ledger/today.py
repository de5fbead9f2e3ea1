"""How many tokens were used today, by caller and service? From the ledger, and from the spool where it goes on.

Read by gateways when they start, so that the day's limits hold after a restart of everything: whoever loses count must
not lose it in favour of the caller. What the ledger took in meanwhile is found by reading again: a segment is removed
only when all of it is in the ledger.
"""

import contextlib
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Final

from stoker.base.errors import Driver
from stoker.drivers import spool
from stoker.drivers.store import database

_DAY_SECONDS: Final = 86400
_OURS: Final = "stoker:"  # probes and copies are on nobody's account
_TRIES: Final = 5
_SUMS: Final = (
    "SELECT caller, service, sum(prompt_tokens + output_tokens) FROM hours WHERE hour >= ? AND hour < ?"
    " GROUP BY caller, service"
)


def used(ledger: Path, folder: Path, *, day: int) -> list[tuple[str, str, int]]:
    """Sum the tokens of a day of UTC; raises Driver when the ledger or the spool cannot be read."""
    for attempt in range(_TRIES):
        segments = sorted(folder.glob(f"*{spool.SUFFIX}"))
        sums, offsets = _ingested(ledger, day)
        try:
            for path in segments:
                _add(sums, path, offsets.get(path.name, 0), day)
        except Driver:
            if attempt + 1 < _TRIES and not all(path.exists() for path in segments):
                continue  # it went into the ledger after we had looked there
            raise
        return [(caller, service, tokens) for (caller, service), tokens in sums.items() if not caller.startswith(_OURS)]
    raise Driver(f"the spool in {folder} changes faster than it can be read")


def _ingested(ledger: Path, day: int) -> tuple[Counter[tuple[str, str]], dict[str, int]]:
    sums: Counter[tuple[str, str]] = Counter()
    if not ledger.exists():
        return sums, {}
    begin = day * _DAY_SECONDS
    with (
        database.told(ledger),
        contextlib.closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as db,
    ):
        db.execute("BEGIN")  # sums and offsets of one moment
        for caller, service, tokens in db.execute(_SUMS, (begin, begin + _DAY_SECONDS)):
            sums[caller, service] += tokens
        return sums, dict(db.execute("SELECT name, offset FROM segments"))


def _add(sums: Counter[tuple[str, str]], path: Path, offset: int, day: int) -> None:
    while True:
        batch = spool.read(path, offset, limit=10_000)
        for record in batch.records:
            if int(record.at // _DAY_SECONDS) == day:
                sums[record.caller, record.service] += record.tokens.prompt + record.tokens.output
        after = batch.resume_offset if batch.corrupt else batch.next_offset
        if after <= offset:
            return
        offset = after
