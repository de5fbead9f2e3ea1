"""What was in flight in a worker that died? Its live slot names the requests; those without a record become `lost`."""

from pathlib import Path

from stoker.drivers import spool
from stoker.facts.ending import Outcome
from stoker.facts.live import InFlight, Live
from stoker.facts.record import Record


def records(live: Live, folder: Path, *, now: float) -> list[Record]:
    """Write a `lost` record for each request in flight whose own record is not in the dead worker's spool.

    A request is cleared from the slot only after its record was written, so one killed in between stands in both. What
    was ingested already needs no look: the ledger keeps the first record of an id.
    """
    wanted = {request.id for request in live.in_flight}
    if not wanted:
        return []
    for path in sorted(folder.glob(f"{live.worker}-*{spool.SUFFIX}")):
        offset, end = 0, path.stat().st_size
        while offset < end and wanted:
            batch = spool.read(path, offset)
            wanted -= {record.id for record in batch.records}
            after = batch.resume_offset if batch.corrupt else batch.next_offset
            if after <= offset:
                break
            offset = after
    return [_lost(request, now) for request in live.in_flight if request.id in wanted]


def _lost(request: InFlight, now: float) -> Record:
    return Record(
        id=request.id,
        request_id=request.request_id,
        at=request.at,
        caller=request.caller,
        key_id=request.key_id,
        service=request.service,
        model=request.model,
        endpoint=request.endpoint,
        incarnation=request.incarnation,
        dialect=request.dialect,
        path=request.path,
        stream=request.stream,
        outcome=Outcome.LOST,
        detail=f"found {max(0.0, now - request.at):.0f} s after it began",
    )
