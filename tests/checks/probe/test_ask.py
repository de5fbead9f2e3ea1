"""The matrix against a gateway that must hold, and against servers that do not."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import KEY, OTHER, caller, endpoint, engines, gateway, routes, whole

from stoker.checks.probe.ask import Door, during, once
from stoker.checks.probe.matrix import Sort, Who, paths
from stoker.facts.door import Cors
from stoker.facts.door import Door as Rules

KEYS = {Who.GOOD: KEY, Who.OTHER: OTHER, Who.EXPIRED: "sk-old", Who.REVOKED: "sk-gone"}
PAGE = "https://app.test"


@pytest.mark.anyio
async def test_our_gateway_holds_in_every_row(tmp_path: Path) -> None:
    old, gone = caller("old", "sk-old"), caller("gone", "sk-gone")
    old = msgspec.structs.replace(old, keys=(msgspec.structs.replace(old.keys[0], expires_at=1.0),))
    gone = msgspec.structs.replace(gone, keys=(msgspec.structs.replace(gone.keys[0], revoked=True),))
    people = (caller("alice", KEY), caller("bob", OTHER, services=("default/nothing",)), old, gone)
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine), door=Rules(cors=Cors(origins=(PAGE,))))
        async with gateway(tmp_path, policy, callers=people) as rig:
            door = Door(url=f"http://127.0.0.1:{rig.port}", keys=KEYS, model="tiny", origin=PAGE)
            rows = await asyncio.to_thread(lambda: list(once(door)))
            assert [row for row in rows if not row.holds] == []
            assert {row.who for row in rows} == set(Who)
            assert len(rows) > 900
            assert engine.seen == []
            for open_ in (Rules(cors=Cors(origins=("*",))), Rules(open=("Health", "Root", "Metrics"))):
                await rig.load(routes(endpoint(engine), door=open_))
                door = Door(url=door.url, keys={}, model="tiny")
                offending = (await asyncio.to_thread(during, door, 0.0)).offending
                assert {row.path for row in offending} >= ({"/metrics"} if not open_.cors else {"/v1/models"})


Handle = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(handle: Handle) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "POST", "HEAD", "OPTIONS", "DELETE"):
        setattr(Handler, f"do_{method}", handle)
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        thread.join(10)
        made.server_close()


def everything(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "0")
    handler.send_header("access-control-allow-origin", "*")
    handler.end_headers()


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def test_an_open_server_offends_in_every_row_that_is_not_open() -> None:
    with server(everything) as url:
        rows = list(once(Door(url=url, keys={})))
    closed = {(p.method, p.path.replace("MODEL", "model")) for p in paths() if p.sort is not Sort.HEALTH}
    assert {(r.method, r.path.replace("MODEL", "model")) for r in rows if not r.holds} == closed


def test_no_answer_is_asked_again_and_then_offends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.checks.probe.ask.clock.sleep", lambda _: None)
    with server(cut) as url:
        row = next(once(Door(url=url, keys={})))
    assert row.fault.startswith("no answer")
