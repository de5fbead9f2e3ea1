"""Metrics pages of real engines, in fleet names; older names; what is absent stays absent."""

from pathlib import Path

import pytest

from stoker.engines.registry import ENGINES, get

VLLM = Path("tests/data/engine-samples/vllm-0.32.0-metrics-after-load.txt").read_text()
LLAMA = Path("tests/data/engine-samples/llama.cpp-2026.10.11549-metrics.txt").read_text()


def test_a_real_page_of_vllm() -> None:
    found = get("vllm").metrics(VLLM)

    assert found["prefix_cache_hits_total"] == 32
    assert found["prefix_cache_lookups_total"] == 10122
    assert found["generation_tokens_total"] == 4928
    assert found["requests_finished_total"] == 36
    assert found["request_ttft_seconds_count"] == 37  # one of them was cancelled later
    assert set(get("vllm").expected_metrics()) <= set(found)


def test_a_real_page_of_llama_cpp() -> None:
    found = get("llama.cpp").metrics(LLAMA)

    assert set(get("llama.cpp").expected_metrics()) <= set(found)
    assert found["prompt_tokens_total"] == found["prefix_cache_lookups_total"] == 32
    assert found["prefix_cache_hits_total"] == 15
    assert found["generation_tokens_total"] == 16
    assert "kv_cache_utilization_ratio" not in found


def test_older_names_of_vllm_mean_the_same() -> None:
    found = get("vllm").metrics("vllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_hits_total 3\n")

    assert found == {"kv_cache_utilization_ratio": 0.5, "prefix_cache_hits_total": 3}


def test_ranks_are_added_and_fill_levels_are_not() -> None:
    page = "".join(
        f'sglang:num_running_reqs{{tp_rank="{rank}"}} 2\nsglang:token_usage{{tp_rank="{rank}"}} 0.{rank}\n'
        for rank in (3, 7)
    )

    assert get("sglang").metrics(page) == {"requests_running": 4, "kv_cache_utilization_ratio": 0.7}


@pytest.mark.parametrize("name", list(ENGINES))
def test_an_empty_page_has_no_zeros(name: str) -> None:
    assert get(name).metrics("") == {}


def test_an_opaque_command_is_read_whatever_it_is() -> None:
    assert get("command").metrics(LLAMA)["requests_running"] == 0
    assert get("command").metrics(VLLM)["prefix_cache_hits_total"] == 32
    assert get("command").metrics("trtllm_num_requests_running 3\n") == {"requests_running": 3}
