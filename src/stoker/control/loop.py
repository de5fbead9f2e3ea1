"""The reconcile loop: observe once, decide purely, publish, act; again at every change and every few moments."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from stoker.base import clock
from stoker.base.errors import Driver, StokerError
from stoker.base.json import JsonObject
from stoker.control import caches, deployments, replicas, routing, services, world
from stoker.control.desk import Desk
from stoker.control.routing import Board
from stoker.decide.acknowledge import acknowledged
from stoker.decide.publish import Labelled
from stoker.facts.observed import Phase

RESYNC: Final = 30.0
_INGEST_EVERY: Final = 1.0
_GUARD_EVERY: Final = 1.0
_ACKNOWLEDGE: Final = 0.1
_OF_THE_PROCESS: Final = ("process", "route", "inForce", "startup", "conditions")
_log = logging.getLogger("control.loop")


async def pass_once(desk: Desk, board: Board) -> float:
    """Make one pass and tell after how many seconds to look again at the latest."""
    seen = await world.observe(desk)
    await caches.run(desk, seen)
    steps = replicas.decide(desk, seen, board)
    endpoints = [
        Labelled(
            endpoint=made,
            namespace=step.resource.namespace,
            labels={**step.resource.labels, "stoker.dev/replica": step.resource.name},
        )
        for step in steps
        if (made := replicas.endpoint_of(step, desk.layout.keys)) is not None
    ]
    try:
        await routing.update(desk, seen, board, endpoints=endpoints)
    except Driver as error:
        routing.refused(error)
    await replicas.carry_out(desk, seen, steps)
    serving = replicas.serving(steps, seen, board)
    await deployments.run(desk, seen, serving=serving, offered=replicas.offered(steps))
    await services.run(desk, seen, board)
    desk.passes += 1
    waits = [RESYNC, *(s.decision.look_again for s in steps if s.decision.look_again is not None)]
    if not seen.gateways.gone and not acknowledged(seen.gateways, board.routes.generation, now=seen.now):
        waits.append(
            _ACKNOWLEDGE
        )  # a rollout goes on when the gateways have taken it over, and nothing rings a bell then
    return min(waits)


async def run(desk: Desk, board: Board, stopping: asyncio.Event) -> None:
    """Go on until ``stopping``; a pass that fails is logged and tried again, never the end."""
    while not stopping.is_set():
        desk.bell.clear()
        wait = await _guarded(desk, board)
        await _first(wait, desk.bell, stopping)


async def _guarded(desk: Desk, board: Board) -> float:
    try:
        return await pass_once(desk, board)
    except StokerError as error:
        _log.warning("pass failed", extra={"fields": {"error": str(error)}})
    except Exception:  # noqa: BLE001 - the pass: what fails now is tried again in a second
        _log.exception("pass failed")
    return 1.0


async def _first(wait: float, *events: asyncio.Event) -> None:
    """Wait until one of the events or the time."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=max(0.05, wait), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def ingest(desk: Desk, stopping: asyncio.Event) -> None:
    """Take ledger records in, off the reconcile loop: a full or damaged ledger must not stop control."""
    await every(
        _INGEST_EVERY, lambda: asyncio.to_thread(desk.ledger.ingest, desk.layout.spool), stopping, what="ingest"
    )


async def guard(desk: Desk, board: Board, stopping: asyncio.Event) -> None:
    """Wake the loop when somebody else removed or changed what is published: it is the policy of the next worker."""

    async def look() -> None:
        if any(not board.untouched(path) for path in board.stamps):
            desk.wake()

    await every(_GUARD_EVERY, look, stopping, what="guard")


async def every(span: float, work: Callable[[], Awaitable[object]], stopping: asyncio.Event, *, what: str) -> None:
    """Repeat something until ``stopping``; a failure is said once, until it changes."""
    last = ""
    while not stopping.is_set():
        try:
            await work()
            last = ""
        except StokerError as error:
            if str(error) != last:
                _log.error("background work failed", extra={"fields": {"what": what, "error": str(error)}})
            last = str(error)
        await _first(span, stopping)


async def stop_engines(desk: Desk, *, within: float) -> None:
    """Drain and stop every engine, keeping the desired state; bounded. The gateways have stopped already."""
    until = clock.mono() + within
    asked: set[str] = set()
    while clock.mono() < until:
        living = [a for a in await desk.host.list() if a.phase not in (Phase.EXITED, Phase.LOST)]
        if not living:
            break
        for attempt in living:
            if attempt.run.name not in asked:
                asked.add(attempt.run.name)
                await desk.host.stop(attempt.run.name, grace=10.0)
        await asyncio.sleep(0.1)
    await _remember_stopped(desk)


async def _remember_stopped(desk: Desk) -> None:
    """Write down that no attempt runs, so that the next start begins one at once instead of mourning a crash."""
    for resource in await desk.store.list("ModelReplica"):
        memory = deployments.memory_of(resource)
        clean: JsonObject = {"attempt": memory.attempt, "crashes": memory.crashes}
        status = {
            k: v
            for k, v in resource.status.items()
            if k not in ("process", "route", "inForce", "startup", "conditions")
        }
        await deployments.write_status(desk, resource, {**status, "memory": clean})
    for attempt in await desk.host.list():
        if attempt.phase in (Phase.EXITED, Phase.LOST):
            await desk.host.forget(attempt.run.name)
