"""Which sessions were there, how much of their prompts was cached, and what broke the cache?"""

import asyncio
from collections.abc import Sequence
from typing import Final

from stoker.base import clock
from stoker.base.errors import NotFound
from stoker.base.json import Json, JsonObject
from stoker.control.desk import Desk
from stoker.decide.steer.breaks import Finding, Turn, Verdict, explain
from stoker.facts.record import Record
from stoker.wire.prompt import ENDS

_ASKED: Final = frozenset({"chat", "completions", "responses", "messages"})
_BROKEN: Final = frozenset({Verdict.CHANGED, Verdict.MOVED, Verdict.FORGOTTEN})


async def listing(desk: Desk, *, since: float, limit: int) -> JsonObject:
    """List the sessions that were active last. What lies in the spool is taken in first."""
    await asyncio.to_thread(desk.ledger.ingest, desk.layout.spool)
    found = await asyncio.to_thread(desk.ledger.sessions, since=since, limit=limit)
    turns = [(name, _turns(records)) for name, records in found]
    return {"items": [_summary(name, those) for name, those in turns if those]}  # of some all requests were refused


async def one(desk: Desk, name: str) -> JsonObject:
    """Explain one session, turn by turn. Raises NotFound."""
    await asyncio.to_thread(desk.ledger.ingest, desk.layout.spool)
    records = _turns(await asyncio.to_thread(desk.ledger.session, name))
    names = {record.session for record in records}
    if not records:
        raise NotFound(f"no session begins with '{name}'; `stoker sessions` lists those that there are")
    if len(names) > 1:
        raise NotFound(f"'{name}' is the beginning of {len(names)} sessions; give more of it")
    rows: list[Json] = []
    for record, finding in _explained(records):
        rows.append(_row(record, finding))
    return {"session": records[0].session, "items": rows}


def _turns(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.dialect in _ASKED and record.blocks and record.endpoint]


def _explained(records: Sequence[Record]) -> list[tuple[Record, Finding]]:
    """Explain each request by the one before it at the same model: an agent has a small one too, with its own."""
    lines: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        lines.setdefault((record.service, record.dialect), []).append(record)
    found: list[tuple[Record, Finding]] = []
    for line in lines.values():
        found += zip(line, explain([_turn(record) for record in line], ENDS), strict=True)
    return sorted(found, key=lambda pair: (pair[0].at, pair[0].id))


def _turn(record: Record) -> Turn:
    return Turn(
        at=record.at,
        replica=record.incarnation,
        blocks=record.blocks,
        prompt_bytes=record.prompt_bytes,
        tools_bytes=record.tools_bytes,
        system_bytes=record.system_bytes,
        prompt_tokens=record.tokens.prompt,
        cached_tokens=record.tokens.cached,
    )


def _summary(name: str, records: Sequence[Record]) -> JsonObject:
    findings = [finding for _, finding in _explained(records)]
    prompt = sum(record.tokens.prompt for record in records)
    cached = sum(record.tokens.cached for record in records)
    return {
        "session": name,
        "last_at": clock.rfc3339(records[-1].at),
        "caller": records[-1].caller,
        "service": records[-1].service,
        "requests": len(records),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "cached_fraction": round(cached / prompt, 4) if prompt else None,
        "broken": sum(finding.verdict in _BROKEN for finding in findings),
        "again_tokens": sum(finding.again_tokens for finding in findings),
    }


def _row(record: Record, finding: Finding) -> JsonObject:
    changed = finding.verdict is Verdict.CHANGED
    return {
        "at": clock.rfc3339(record.at),
        "request_id": record.request_id,
        "service": record.service,
        "endpoint": record.endpoint,
        "turn": record.turn,
        "outcome": record.outcome.value,
        "prompt_tokens": record.tokens.prompt,
        "cached_tokens": record.tokens.cached,
        "verdict": finding.verdict.value,
        "block": finding.block if changed else None,
        "where": finding.where,
        "from_bytes": finding.start_bytes if changed else None,
        "to_bytes": finding.end_bytes if changed else None,
        "again_tokens": finding.again_tokens,
        "advice": finding.advice,
    }
