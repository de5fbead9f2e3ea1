"""The batching engine behind the script: what it shares, how long it takes, and what it says of itself."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.engines.registry import get
from stoker.predict.batching.hashed import HashedBlocks
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Batch, Request
from stoker.rehearse.batch import birth, pages
from stoker.rehearse.batch import rig as rigs
from stoker.rehearse.batch.cards import Exporter
from stoker.rehearse.batch.clockwork import Clockwork, Turn
from stoker.rehearse.batch.histogram import Seen
from stoker.rehearse.batch.prefix import hashes
from stoker.rehearse.batch.rig import Cards, Linear, Phases, Rig, Step

pytestmark = pytest.mark.anyio
LINEAR = Linear(base_seconds=0.02, per_sequence_seconds=0.001, per_prefill_token_seconds=0.0001)
CARDS = Cards(
    count=2,
    name="NVIDIA H200",
    memory_bytes=150e9,
    weights_bytes=70e9,
    cache_bytes=50e9,
    bandwidth_bytes_per_second=4.8e12,
    flops_per_second=9.9e14,
    token_flops=1.4e11,
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        real = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.now += max(1e-4, seconds)  # who spins sees time go on
            await real(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)

    def __call__(self) -> float:
        return self.now


def clockwork(rig: Rig, time: Time, *, speed: float = 1.0) -> Clockwork:
    machine = Machine(rig.limits, rigs.step_time(rig), HashedBlocks(rig.limits))
    return Clockwork(machine, seen=Seen(sglang=rig.names == "sglang"), speed=speed, mono=time)


async def served(work: Clockwork, requests: list[Request]) -> list[Turn]:
    """Send all at once and wait for the last token of each."""
    running = asyncio.create_task(work.run())
    turns = [turn for request in requests if (turn := work.submit(request)) is not None]
    for turn in turns:
        await turn.tokens(turn.job.request.output_tokens)
    running.cancel()
    return turns


async def test_tokens_come_when_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    rig = Rig(linear=LINEAR, sequences=8, kv_cache_tokens=10_000)
    (turn,) = await served(clockwork(rig, time), [Request(prompt_tokens=100, output_tokens=11)])

    first = 0.02 + 100 * 0.0001
    assert turn.truth["model_first_token_seconds"] == pytest.approx(first)
    assert turn.truth["model_last_token_seconds"] == pytest.approx(first + 10 * 0.021)
    assert time.now - 100.0 == pytest.approx(first + 10 * 0.021)


async def test_speed_makes_time_short_and_changes_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    rig = Rig(linear=LINEAR, sequences=8, kv_cache_tokens=10_000)
    turns = await served(clockwork(rig, time, speed=50.0), [Request(100, 11), Request(50, 5)])
    assert [turn.truth["model_first_token_seconds"] for turn in turns] == [pytest.approx(0.035)] * 2
    assert time.now - 100.0 == pytest.approx((0.035 + 4 * 0.022 + 6 * 0.021) / 50, rel=0.01)


async def test_what_does_not_fit_waits_is_thrown_out_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(linear=LINEAR, sequences=8, kv_cache_tokens=288)
    work = clockwork(rig, Time(monkeypatch))
    turns = await served(work, [Request(100, 60), Request(100, 60), Request(100, 60)])
    assert [turn.granted for turn in turns] == [60, 60, 60]
    assert work.machine.gauges.preemptions > 0
    assert work.submit(Request(300, 100)) is None  # it could never end here


async def test_a_client_that_leaves_frees_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    work = clockwork(Rig(linear=LINEAR, sequences=1), Time(monkeypatch))
    running = asyncio.create_task(work.run())
    first, second = work.submit(Request(10, 10_000)), work.submit(Request(10, 3))
    assert first is not None
    assert second is not None
    await first.tokens(5)
    work.leave(first)
    await second.tokens(3)
    assert work.machine.running == 0
    running.cancel()


@given(st.lists(st.sampled_from("ab"), max_size=20), st.lists(st.sampled_from("ab"), max_size=20), st.integers(1, 5))
def test_two_prompts_share_as_many_hashes_as_whole_blocks(one: list[str], other: list[str], size: int) -> None:
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    mine, theirs = hashes(one, size), hashes([f"{word} " for word in other], size)  # spaces do not count
    assert len(mine) == len(one) // size
    assert [a == b for a, b in zip(mine, theirs, strict=False)] == [
        (i + 1) * size <= same for i in range(min(len(mine), len(theirs)))
    ]


def test_a_recording_becomes_step_times() -> None:
    true = Linear(base_seconds=0.01, per_sequence_seconds=0.0005, per_prefill_token_seconds=0.00002)
    steps = [(1, 0), (8, 0), (32, 0), (4, 512), (16, 2048), (0, 4096)]
    recorded = tuple(
        Step(seconds=true(Batch(decodes, 0.0, prompt, 0.0)), decodes=decodes, prefill_tokens=prompt)
        for decodes, prompt in steps
    )
    found = rigs.fitted(recorded)
    assert found.base_seconds == pytest.approx(0.01, rel=1e-6)
    assert found.per_sequence_seconds == pytest.approx(0.0005, rel=1e-6)
    assert found.per_prefill_token_seconds == pytest.approx(0.00002, rel=1e-6)
    with pytest.raises(Invalid, match="1 recorded steps are too few"):
        rigs.fitted(recorded[1:2])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"{}", "say how long a step takes, in one way"),
        (b'{"linear":{"base_seconds":1},"recorded":[{"seconds":1}]}', "in one way"),
        (b'{"linear":{"base_secs":1}}', "base_secs"),
        (b'{"linear":{"base_seconds":1},"sequences":0}', "begin at 1"),
        (b'{"names":"tgi","linear":{"base_seconds":1}}', "names"),
        (b"[]", "no rig of a rehearsal"),
    ],
)
def test_a_wrong_rig_is_named(data: bytes, told: str) -> None:
    with pytest.raises(Invalid, match=told) as raised:
        rigs.parse(data, file="r.json")
    assert "r.json" in str(raised.value)


@pytest.mark.parametrize("names", ["vllm", "vllm-old", "sglang"])
async def test_the_metrics_page_is_read_by_the_adapter_of_that_engine(
    monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    rig = Rig(linear=LINEAR, names=names, sequences=4, kv_cache_tokens=2000)  # type: ignore[arg-type]
    work = clockwork(rig, Time(monkeypatch))
    words = [f"w{i}" for i in range(96)]
    await served(work, [Request(64, 10, hashes=hashes(words[:64], 16)), Request(32, 10)])
    await served(work, [Request(80, 10, hashes=hashes(words[:80], 16))])
    work.turned_away = 2
    page = pages.page(work, rig, model="m", finished={"stop": 1, "tool_calls": 2, "abort": 1})
    engine = get("sglang" if names == "sglang" else "vllm")
    found = engine.metrics(page)
    assert set(engine.expected_metrics()) - set(found) <= (
        {"request_tpot_seconds_sum", "request_tpot_seconds_count"} if names == "vllm-old" else set()
    )
    assert found["requests_running"] == 0
    assert found["generation_tokens_total"] == 30
    assert found["prompt_tokens_total"] == 176
    assert found["prefix_cache_hits_total"] == 64
    assert found["request_ttft_seconds_count"] == 3
    assert found["request_duration_seconds_count"] == 3
    if names == "vllm":
        assert found["requests_finished_total"] == 4
        assert found["requests_refused_total"] == 2


def names_on(page: str) -> set[str]:
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}


async def test_the_names_are_those_of_a_real_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every family that we write is on a page that was recorded from vLLM, with the same labels and bounds."""
    rig = Rig(linear=LINEAR, sequences=4, kv_cache_tokens=2000)
    ours = pages.page(clockwork(rig, Time(monkeypatch)), rig, model="m", finished={})
    real = (Path(__file__).parents[1] / "data/engine-samples/vllm-0.32.0-metrics-after-load.txt").read_text()
    assert names_on(ours) <= names_on(real)
    assert bounds(ours, "vllm:time_to_first_token_seconds") == bounds(real, "vllm:time_to_first_token_seconds")
    assert bounds(ours, "vllm:e2e_request_latency_seconds") == bounds(real, "vllm:e2e_request_latency_seconds")
    assert bounds(ours, "vllm:inter_token_latency_seconds") == bounds(real, "vllm:inter_token_latency_seconds")


def bounds(page: str, name: str) -> list[str]:
    return [found[1] for found in re.finditer(rf'^{name}_bucket{{[^}}]*le="([^"]+)"', page, re.MULTILINE)]


def test_the_older_names_replace_the_newer() -> None:
    rig = Rig(linear=LINEAR, names="vllm-old")
    found = names_on(pages.page(Clockwork(Machine(rig.limits, LINEAR)), rig, model="m", finished={}))
    assert {
        "vllm:gpu_cache_usage_perc",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:time_per_output_token_seconds",
    } <= found
    assert {"vllm:num_requests_swapped", "vllm:cpu_cache_usage_perc"} <= found
    assert not {"vllm:kv_cache_usage_perc", "vllm:prefix_cache_hits_total", "vllm:inter_token_latency_seconds"} & found


async def test_a_token_is_counted_once_though_its_request_was_thrown_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(linear=LINEAR, sequences=8, kv_cache_tokens=288)
    work = clockwork(rig, Time(monkeypatch))
    await served(work, [Request(100, 60), Request(100, 60), Request(100, 60)])
    assert work.machine.gauges.preemptions
    assert work.generated_tokens == 180


async def test_a_busy_card_need_not_compute_much(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(linear=Linear(base_seconds=0.015), cards=CARDS, sequences=4)
    work = clockwork(rig, Time(monkeypatch))
    exporter = Exporter(work, rig)
    await served(work, [Request(16, 400)])
    rows = {}
    for line in exporter.page().splitlines():
        if 'gpu="1"' in line:
            rows[line.partition("{")[0]] = float(line.rpartition(" ")[2])
    assert rows["DCGM_FI_DEV_GPU_UTIL"] >= 99
    assert rows["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"] < 0.1
    assert rows["DCGM_FI_PROF_DRAM_ACTIVE"] > 0.9
    assert rows["DCGM_FI_DEV_FB_USED"] > 120e9 / (1 << 20)


@pytest.mark.parametrize(("names", "engine"), [("vllm", "vllm"), ("sglang", "sglang")])
def test_the_log_of_a_start_is_read_by_the_adapter_of_that_engine(names: str, engine: str) -> None:
    rig = Rig(
        linear=LINEAR,
        names=names,  # type: ignore[arg-type]
        cards=CARDS,
        kv_cache_tokens=123_456,
        context_tokens=8192,
        phases=Phases(download_seconds=3, load_seconds=8, compile_seconds=5, graphs_seconds=2),
    )
    lines = list(birth.lines(rig, model="org/m"))
    facts = get(engine).read_log([line.text for line in lines])
    assert facts.ready
    assert facts.kv_cache_tokens == 123_456
    assert facts.weight_bytes == pytest.approx(70e9, rel=0.01)
    assert sum(line.seconds for line in lines) == pytest.approx(18 if engine == "vllm" else 13)


def test_a_rig_survives_its_file() -> None:
    rig = Rig(linear=LINEAR, cards=CARDS, source="own")
    assert rigs.parse(msgspec.json.encode(rig)) == rig
