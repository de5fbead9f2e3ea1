"""The controller process: the API, the reconcile loop, and the ledger's ingest."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

import uvicorn

from stoker.base import log
from stoker.base.errors import Driver, StokerError
from stoker.base.layout import Layout
from stoker.control import api, loop, routing
from stoker.control.desk import Desk
from stoker.control.evidence.questions import Questions
from stoker.control.evidence.stock import Stock
from stoker.drivers import files
from stoker.drivers.hosts.local import LocalHost
from stoker.drivers.ledger.sqlite import Ledger
from stoker.drivers.lock import hold
from stoker.drivers.store.sqlite import SqliteStore

_STOP_WITHIN = 40.0
_log = logging.getLogger("control")


def main(argv: list[str]) -> int:
    """Run until SIGTERM (stop the engines too) or SIGHUP (leave them to the next controller)."""
    parser = argparse.ArgumentParser(prog="stoker.control")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--hub-endpoint", default="")
    asked = parser.parse_args(argv)
    log.set_up()
    layout = Layout(asked.state_dir)
    layout.make()
    try:
        with hold(layout.run / "controller.lock", what="controller"):
            asyncio.run(_serve(layout, hub_endpoint=asked.hub_endpoint))
    except StokerError as error:
        _log.error("controller ends", extra={"fields": {"error": str(error)}})
        return 1
    return 0


async def _serve(layout: Layout, *, hub_endpoint: str) -> None:
    token, _ = files.secret(layout.admin_token), files.secret(layout.probe_key)
    bell = asyncio.Event()
    stock = Stock(layout=layout, hub_endpoint=hub_endpoint, wake=bell.set)
    desk = Desk(
        layout=layout,
        store=SqliteStore(layout.database),
        host=LocalHost(layout.root),
        stock=stock,
        questions=Questions(wake=bell.set),
        ledger=Ledger(layout.ledger),
        bell=bell,
    )
    stopping, leave = asyncio.Event(), asyncio.Event()
    running = asyncio.get_running_loop()
    running.add_signal_handler(signal.SIGTERM, stopping.set)
    running.add_signal_handler(signal.SIGINT, stopping.set)

    def go_and_leave() -> None:
        leave.set()
        stopping.set()

    running.add_signal_handler(signal.SIGHUP, go_and_leave)
    board = routing.load(desk)
    server = _server(desk, token)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        tasks.create_task(_secure(layout, server))
        tasks.create_task(loop.ingest(desk, stopping))
        tasks.create_task(loop.guard(desk, board, stopping))
        await loop.run(desk, board, stopping)
        await desk.questions.close()
        await stock.close()
        if not leave.is_set():
            await loop.stop_engines(desk, within=_STOP_WITHIN)
        server.should_exit = True
    await desk.store.close()


def _server(desk: Desk, token: str) -> uvicorn.Server:
    desk.layout.api_socket.unlink(missing_ok=True)
    config = uvicorn.Config(
        api.build(desk, token=token),
        uds=str(desk.layout.api_socket),
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="asyncio",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    return server


async def _secure(layout: Layout, server: uvicorn.Server) -> None:
    """Close the socket to other users: uvicorn opens it to all, and the run folder is only the first wall."""
    while not server.started:
        if server.should_exit:
            raise Driver("the API did not start")
        await asyncio.sleep(0.01)
    layout.api_socket.chmod(0o600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
