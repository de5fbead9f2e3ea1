"""What logs tell. Lines of llama.cpp are recorded; those of other engines are from their documentation."""

from pathlib import Path

import pytest

from stoker.engines.base import Reason
from stoker.engines.registry import get

START = Path("tests/data/engine-samples/llama.cpp-2026.10.11549-start.log").read_text().splitlines()


def test_a_real_start_of_llama_cpp() -> None:
    facts = get("llama.cpp").read_log(START)

    assert facts.ready
    assert facts.kv_cache_tokens == 4096
    assert facts.trouble is None
    assert not get("llama.cpp").read_log(START[:6]).ready


def test_a_start_of_vllm() -> None:
    facts = get("vllm").read_log(
        [
            "(APIServer) INFO vLLM API server version 0.32.0",
            "Loading safetensors checkpoint shards:  50% Completed | 1/2",
            "INFO Model loading took 14.5 GiB memory and 9.1 seconds",
            "INFO Available KV cache memory: 5.25 GiB",
            "INFO GPU KV cache size: 123,456 tokens",
            "INFO:     Application startup complete.",
        ]
    )

    assert (facts.ready, facts.version, facts.loading_fraction) == (True, "0.32.0", 0.5)
    assert (facts.weight_bytes, facts.kv_cache_bytes) == (int(14.5 * 2**30), int(5.25 * 2**30))
    assert facts.kv_cache_tokens == 123456


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        (
            "llama.cpp",
            "E llama_model_load: error loading model: unknown model architecture: 'lxama'",
            "UnsupportedArchitecture",
        ),
        ("llama.cpp", "E gguf_init_from_reader: failed to read key-value pairs", "ModelFilesNotFound"),
        ("llama.cpp", "E ggml_aligned_malloc: insufficient memory (attempted to allocate 15625.00 MB)", "OutOfMemory"),
        ("llama.cpp", "E llama_init_from_model: failed to allocate buffer for kv cache", "OutOfMemory"),
        ("llama.cpp", "llama_server: port 18393 is in use on 127.0.0.1", "PortInUse"),
        ("llama.cpp", "llama_server: unknown flag --prot: did you mean '--port'?", "BadFlag"),
        ("llama.cpp", "llama_server: unknown value for cache_type_k: q9", "BadFlag"),
        ("llama.cpp", "llama_server: --model: there is no file nope.gguf", "ModelFilesNotFound"),
        ("llama.cpp", "llama_server: this processor lacks avx2, fma, which the embedded", "CpuLacksInstructions"),
        ("vllm", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "OutOfMemory"),
        ("vllm", "ValueError: No available memory for the cache blocks.", "OutOfMemory"),
        (
            "vllm",
            "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
            "UnsupportedArchitecture",
        ),
        ("vllm", "api_server.py: error: unrecognized arguments: --foo", "BadFlag"),
        ("vllm", "KeyError: 'invalid tool call parser: foo (chose from { hermes })'", "BadFlag"),
        ("vllm", "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "DriverMismatch"),
        ("vllm", "OSError: [Errno 98] Address already in use", "PortInUse"),
        ("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "OutOfMemory"),
        ("tensorrt-llm", "ValueError: Unknown architecture for AutoModelForCausalLM: Foo", "UnsupportedArchitecture"),
    ],
)
def test_each_way_to_fail_has_its_reason_and_next_action(name: str, line: str, reason: str) -> None:
    told = get(name).explain(code=1, signal=None, log_tail=["INFO before", line, "after"])

    assert told.reason == reason
    assert told.action
    assert told.message


@pytest.mark.parametrize(
    ("code", "signal", "reason"),
    [(None, 9, Reason.KILLED), (None, 4, Reason.CPU_TOO_OLD), (None, 11, Reason.CRASHED), (7, None, Reason.EXITED)],
)
def test_a_silent_end_is_explained_by_its_signal(code: int | None, signal: int | None, reason: Reason) -> None:
    told = get("vllm").explain(code=code, signal=signal, log_tail=["", "last words", ""])

    assert told.reason is reason
    assert told.action
