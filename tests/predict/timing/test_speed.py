"""Times of a plan: their bands, what binds, and what lies outside the rows."""

import pytest
from tests.predict.test_fits import H100, H200, L40S, LLAMA_8B, LLAMA_70B, plan

from stoker.base.errors import Invalid
from stoker.drivers import figures
from stoker.predict.fits import Plan
from stoker.predict.roles import Split
from stoker.predict.timing.speed import Speeds, speeds


def timed(planned: Plan, *, prompt: int = 1024, output: int = 1024, batch: int = 16) -> Speeds:
    found = speeds(planned, figures.speed(), prompt=prompt, output=output, batch=batch)
    assert found is not None
    return found


def test_a_measured_configuration_lies_in_its_band() -> None:
    found = timed(plan(LLAMA_70B, H200, split=Split(tensor=4, quantize_to_bytes=1.0)), batch=64)

    assert found.tpot_low <= 0.016069 <= found.tpot_high  # Llama 3.1 70B FP8, four H200, 64 at once
    assert found.ttft_low <= 0.264518 <= found.ttft_high
    assert found.extrapolated == ()


@pytest.mark.parametrize(
    ("planned", "load", "words"),
    [
        pytest.param(plan(LLAMA_8B, L40S), {}, "a card like L40S", id="another card"),
        pytest.param(
            plan(LLAMA_8B, H100, context_tokens=60_000), {"prompt": 50_000}, "a prompt of 50000", id="a long prompt"
        ),
        pytest.param(plan(LLAMA_8B, H100, split=Split(pipeline=2)), {}, "pipeline", id="stages"),
        pytest.param(plan(LLAMA_8B, L40S, split=Split(tensor=2)), {}, "PCIe", id="PCIe"),
    ],
)
def test_what_no_row_has_is_marked_and_its_band_begins_at_the_roofline(planned: Plan, load: dict, words: str) -> None:
    found = timed(planned, **load)
    weights = planned.weights.by_role.values()
    read_once = (sum(weights) - 2**30) / (planned.ask.gpu.bandwidth_gbs * 1e9)

    assert any(words in each for each in found.extrapolated)
    assert found.tpot_low < found.tpot < found.tpot_high
    assert found.tpot_low >= 0.9 * read_once / planned.ask.split.pipeline


def test_weight_reads_bind_a_small_batch_and_something_else_a_large_one() -> None:
    found = timed(plan(LLAMA_8B, H100), prompt=512, output=512, batch=1)

    assert found.bound_by == "weight reads"
    assert found.flips_at > 1


def test_each_phase_says_what_binds_it_and_where_that_flips() -> None:
    found = timed(plan(LLAMA_8B, H100, context_tokens=131_072), prompt=128, output=128, batch=1)

    assert found.prefill_bound_by != "attention"
    assert 0 < found.prefill_flips_at < 131_072
    long = timed(plan(LLAMA_8B, H100, context_tokens=131_072), prompt=65_536, output=128, batch=32)
    assert long.prefill_bound_by == "attention"
    assert long.bound_by == "cache reads"
    busy = timed(plan(LLAMA_8B, H100, context_tokens=131_072), prompt=1024, output=128, batch=16)
    assert busy.bound_by == "weight reads"
    assert busy.context_flips_at > 1024


def test_stages_save_no_time_for_a_single_request() -> None:
    one, two = (
        timed(plan(LLAMA_8B, H100, split=Split(pipeline=stages)), prompt=512, output=64, batch=1) for stages in (1, 2)
    )

    assert two.tpot == pytest.approx(one.tpot, rel=0.01)
    assert two.ttft == pytest.approx(one.ttft, rel=0.01)


def test_quantised_weights_are_faster_where_weight_reads_bind() -> None:
    wide = timed(plan(LLAMA_8B, H100), batch=1)
    narrow = timed(plan(LLAMA_8B, H100, split=Split(quantize_to_bytes=1.0)), batch=1)

    assert narrow.tpot < wide.tpot


def test_an_engine_without_rows_has_no_times() -> None:
    planned = plan(LLAMA_8B, H100, engine="llama.cpp", version="")

    assert speeds(planned, figures.speed(), prompt=100, output=100, batch=1) is None


def test_a_load_beyond_the_context_is_refused() -> None:
    with pytest.raises(Invalid, match="more than the context of 8192"):
        speeds(plan(LLAMA_8B, H100), figures.speed(), prompt=8000, output=1000, batch=1)
