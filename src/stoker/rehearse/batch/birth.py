"""How does the engine come up? Its phases one after another, each with the lines that a real one writes."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from stoker.rehearse.batch.rig import Rig

_GIB: Final = 1 << 30
_GB: Final = 1e9


class Line(NamedTuple):
    """Wait so long, in the engine's own seconds, then write this."""

    seconds: float
    text: str


def lines(rig: Rig, *, model: str) -> Iterator[Line]:
    """Write the start of an engine."""
    return _sglang(rig, model) if rig.names == "sglang" else _vllm(rig, model)


def _vllm(rig: Rig, model: str) -> Iterator[Line]:
    phases, cards = rig.phases, rig.cards
    yield Line(0, f"INFO [api_server.py] vLLM API server version {rig.version}")
    if phases.download_seconds:
        yield Line(
            phases.download_seconds,
            f"INFO [weight_utils.py] Time spent downloading weights for {model}: {phases.download_seconds:.6f} seconds",
        )
    for share in (25, 50, 75, 100):
        yield Line(
            phases.load_seconds / 4, f"Loading safetensors checkpoint shards: {share:3d}% Completed | {share // 25}/4"
        )
    weights = cards.weights_bytes / _GIB if cards is not None else 0.0
    yield Line(
        0,
        f"INFO [gpu_model_runner.py] Model loading took {weights:.4f} GiB memory and {phases.load_seconds:.6f} seconds",
    )
    if phases.compile_seconds:
        yield Line(
            phases.compile_seconds, f"INFO [monitor.py] torch.compile takes {phases.compile_seconds:.2f} s in total"
        )
    if cards is not None and cards.cache_bytes:
        yield Line(0, f"INFO [gpu_worker.py] Available KV cache memory: {cards.cache_bytes / _GIB:.2f} GiB")
    yield Line(0, f"INFO [kv_cache_utils.py] GPU KV cache size: {rig.kv_cache_tokens:,} tokens")
    if rig.context_tokens:
        most = rig.kv_cache_tokens / rig.context_tokens
        yield Line(
            0,
            f"INFO [kv_cache_utils.py] Maximum concurrency for {rig.context_tokens:,} tokens per request: {most:.2f}x",
        )
    if phases.graphs_seconds:
        yield Line(
            phases.graphs_seconds,
            f"INFO [gpu_model_runner.py] Graph capturing finished in {phases.graphs_seconds:.0f} secs, took 0.60 GiB",
        )
    yield Line(0, "INFO:     Application startup complete.")


def _sglang(rig: Rig, model: str) -> Iterator[Line]:
    phases, cards = rig.phases, rig.cards
    yield Line(0, f"server_args=ServerArgs(model_path='{model}', max_running_requests={rig.sequences})")
    yield Line(phases.download_seconds, "Load weight begin.")
    for share in (25, 50, 75, 100):
        yield Line(
            phases.load_seconds / 4, f"Loading safetensors checkpoint shards: {share:3d}% Completed | {share // 25}/4"
        )
    weights = cards.weights_bytes / _GB if cards is not None else 0.0
    yield Line(0, f"Load weight end. type=Model, dtype=torch.bfloat16, mem usage={weights:.2f} GB.")
    if cards is not None and cards.cache_bytes:
        yield Line(
            0, f"KV Cache is allocated. #tokens: {rig.kv_cache_tokens}, KV size: {cards.cache_bytes / _GB:.2f} GB"
        )
    yield Line(phases.graphs_seconds, f"Capture cuda graph end. Time elapsed: {phases.graphs_seconds:.2f} s.")
    yield Line(
        0,
        f"max_total_num_tokens={rig.kv_cache_tokens}, chunked_prefill_size={rig.batch_tokens},"
        f" max_running_requests={rig.sequences}, context_len={rig.context_tokens}",
    )
    yield Line(0, "The server is fired up and ready to roll!")
