"""Counters over the lives of workers: what was shown is never taken back, and nothing is counted twice."""

import re
from pathlib import Path

import pytest
from tests.gateway.rig import Rig, ask, endpoint, engines, gateway, post, routes, whole

from stoker.drivers.hosts import processes

pytestmark = pytest.mark.anyio
GET = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"
COUNTER = re.compile(r"^(stoker_\w+(?:_total|_bucket|_sum|_count)\{[^}]*\}) (\S+)$", re.MULTILINE)


async def counters(rig: Rig) -> dict[str, float]:
    public, rig.port = rig.port, rig.admin
    page = (await rig.once(GET)).body.decode()
    rig.port = public
    return {series: float(value) for series, value in COUNTER.findall(page)}


def answered(found: dict[str, float]) -> float:
    return sum(n for series, n in found.items() if series.startswith("stoker_requests_total"))


async def some(rig: Rig, count: int) -> None:
    for _ in range(count):
        assert (await rig.once(post(ask(stream=True)))).status == 200


async def test_a_worker_goes_on_where_the_one_before_it_stopped(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        policy, shown = routes(endpoint(engine)), {}
        for life in range(1, 4):
            async with gateway(tmp_path, policy) as rig:
                before = await counters(rig)
                assert all(before[series] >= value for series, value in shown.items())
                await some(rig, 3)
                shown = await counters(rig)
                assert answered(shown) == 3 * life
                tokens = shown['stoker_tokens_total{worker="0",service="default/tiny",kind="output"}']
                assert tokens == 6 * life
                assert shown['stoker_request_duration_seconds_count{worker="0",service="default/tiny"}'] == 3 * life


async def test_a_killed_worker_takes_no_count_along(tmp_path: Path) -> None:
    """It counted on after it had kept its counters for the last time: the rest is in its spool."""
    kept = tmp_path / "run" / "gateway-0.counts"
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine))
        async with gateway(tmp_path, policy) as rig:
            await some(rig, 2)
            shown = await counters(rig)
            at_the_scrape = kept.read_bytes()
            await some(rig, 3)
        kept.write_bytes(at_the_scrape)  # as after SIGKILL
        async with gateway(tmp_path, policy) as rig:
            now = await counters(rig)
            assert answered(now) == 5
            assert all(now[series] >= value for series, value in shown.items())
        kept.write_bytes(at_the_scrape)
        for segment in (tmp_path / "spool").glob("*"):
            segment.unlink()  # ingested meanwhile: then only what came after the scrape is missing
        async with gateway(tmp_path, policy) as rig:
            assert answered(await counters(rig)) == 2


@pytest.mark.parametrize("spoil", ["cut", "another start of the machine", "another version"])
async def test_counting_begins_anew_where_nothing_good_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    kept = tmp_path / "run" / "gateway-0.counts"
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine))
        async with gateway(tmp_path, policy) as rig:
            await some(rig, 1)
        if spoil == "cut":
            kept.write_bytes(kept.read_bytes()[:-9])
        elif spoil == "another version":
            kept.write_bytes(b"\x81\xa1x\x01")
        else:
            monkeypatch.setattr(processes, "boot_id", lambda: "later")
        async with gateway(tmp_path, policy) as rig:
            assert answered(await counters(rig)) == 0


async def test_a_full_disk_stops_neither_answers_nor_pages(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        (tmp_path / "run" / "gateway-0.new").mkdir()  # no file can be written there
        await some(rig, 2)
        assert answered(await counters(rig)) == 2
