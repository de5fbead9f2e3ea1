"""Settings in force, read back from what engines answer, and compared with what was asked."""

import json
from pathlib import Path

from stoker.base.json import Json
from stoker.engines.base import Difference, InForce
from stoker.engines.differences import compare
from stoker.engines.registry import ENGINES, get
from stoker.spec.deployment import EngineBlock

DATA = Path("tests/data/engine-samples")


def test_llama_cpp() -> None:
    answers: dict[str, Json] = json.loads((DATA / "llama.cpp-2026.10.11549-answers.json").read_text())
    found = get("llama.cpp").in_force(answers)

    assert (found.context_tokens, found.max_sequences, found.kv_cache_tokens) == (2048, 2, 4096)
    assert found.model_names == ("tiny",)
    assert found.version is None


def test_vllm_tells_its_cache_on_its_metrics_page() -> None:
    models: Json = {"data": [{"id": "tiny-bigram", "max_model_len": 4096}]}
    page = (DATA / "vllm-0.32.0-metrics-after-load.txt").read_text()
    found = get("vllm").in_force({"/v1/models": models, "/metrics": page, "/version": {"version": "0.32.0"}})

    assert (found.context_tokens, found.prefix_cache, found.version) == (4096, True, "0.32.0")
    assert found.kv_cache_tokens is not None
    assert found.kv_cache_tokens > 4096


def test_sglang() -> None:
    info: Json = {"context_length": 8192, "max_running_requests": 48, "disable_radix_cache": False, "version": "0.5.23"}
    found = get("sglang").in_force({"/server_info": info})

    assert found == InForce(context_tokens=8192, max_sequences=48, prefix_cache=True, version="0.5.23")


def test_no_engine_trips_over_a_strange_answer() -> None:
    for engine in ENGINES.values():
        for answer in (None, [], {}, "text", {"data": "x"}, {"data": [1]}, {"models": [None]}):
            engine.in_force(dict.fromkeys(engine.probes.in_force, answer))


def test_a_difference_is_told_only_where_both_sides_speak() -> None:
    block = EngineBlock(name="vllm", context_tokens=8192, prefix_cache=True, max_sequences=4)

    assert compare(block, InForce()) == ()
    assert compare(block, InForce(context_tokens=8192, prefix_cache=True)) == ()
    assert compare(block, InForce(context_tokens=4096, prefix_cache=False)) == (
        Difference(field="spec.engine.contextTokens", asked="8192", in_force="4096"),
        Difference(field="spec.engine.prefixCache", asked="true", in_force="false"),
    )
