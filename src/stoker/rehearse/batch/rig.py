"""What is simulated: an engine's settings, how long its steps take, and the cards below it. A file of JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.predict.batching.request import Batch, Limits, StepTime
from stoker.predict.timing.steps import Steps

Names = Literal["vllm", "vllm-old", "sglang"]
_LEAST_SECONDS: Final = 1e-6  # of a step: time must go on


class Linear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Step times as a straight line, in seconds: a table that anybody can write down."""

    base_seconds: float
    per_sequence_seconds: float = 0.0
    per_context_token_seconds: float = 0.0
    per_prefill_token_seconds: float = 0.0
    per_prefill_pair_seconds: float = 0.0

    def __call__(self, batch: Batch) -> float:
        """Seconds of a step."""
        return (
            self.base_seconds
            + batch.decodes * self.per_sequence_seconds
            + batch.context_tokens * self.per_context_token_seconds
            + batch.prefill_tokens * self.per_prefill_token_seconds
            + batch.prefill_pairs * self.per_prefill_pair_seconds
        )


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recorded step of a real engine."""

    seconds: float
    decodes: int = 0
    context_tokens: float = 0.0
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0


class Phases(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a start takes, in seconds."""

    download_seconds: float = 0.0
    load_seconds: float = 0.0
    compile_seconds: float = 0.0
    graphs_seconds: float = 0.0


class Cards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cards that the engine would run on, each with its share of the work."""

    count: int
    name: str
    memory_bytes: float
    weights_bytes: float = 0.0  # on each
    cache_bytes: float = 0.0
    bandwidth_bytes_per_second: float = 0.0
    flops_per_second: float = 0.0
    token_flops: float = 0.0  # that one token costs on each


class Rig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine. Exactly one of ``planned``, ``linear`` and ``recorded`` says how long steps take."""

    source: str = ""  # in words, for the log
    names: Names = "vllm"
    version: str = "0.19.0"
    kv_cache_tokens: int = 65_536
    block_tokens: int = 16
    batch_tokens: int = 8192
    sequences: int = 256
    queue: int = 0
    context_tokens: int = 0
    prefix_cache: bool = True
    planned: dict[str, float] | None = None
    linear: Linear | None = None
    recorded: tuple[Step, ...] = ()
    phases: Phases = Phases()
    cards: Cards | None = None

    @property
    def limits(self) -> Limits:
        """What the machine is told."""
        return Limits(
            blocks=max(1, self.kv_cache_tokens // self.block_tokens),
            block_tokens=self.block_tokens,
            batch_tokens=self.batch_tokens,
            sequences=self.sequences,
            queue=self.queue,
            context_tokens=self.context_tokens,
            prefix_cache=self.prefix_cache,
        )


def parse(data: bytes, *, file: str = "") -> Rig:
    """Read a rig; raises Invalid naming the field."""
    try:
        rig = msgspec.json.decode(data, type=Rig)
    except msgspec.MsgspecError as error:
        raise Invalid(Fault(message=f"it is no rig of a rehearsal: {error}", file=file)) from error
    given = [rig.planned is not None, rig.linear is not None, bool(rig.recorded)]
    if sum(given) != 1:
        hint = 'such as "linear": {"base_seconds": 0.02}'
        raise Invalid(
            Fault(message="say how long a step takes, in one way: planned, linear or recorded", file=file, hint=hint)
        )
    if min(rig.kv_cache_tokens, rig.block_tokens, rig.batch_tokens, rig.sequences) < 1:
        raise Invalid(Fault(message="sizes and counts begin at 1", file=file))
    return rig


def load(path: Path) -> Rig:
    """Read the file of a rig. Raises Invalid."""
    try:
        return parse(path.read_bytes(), file=str(path))
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(path))) from error


def step_time(rig: Rig) -> StepTime:
    """Make what says how long a step takes. Raises Invalid for a recording that says too little."""
    if rig.linear is not None:
        return _going_on(rig.linear)
    if rig.planned is not None:
        return _going_on(Steps.of(rig.planned))
    return _going_on(fitted(rig.recorded))


def fitted(seen: Sequence[Step]) -> Linear:
    """Put a straight line through recorded steps, by least squares; nothing takes less than no time."""
    import numpy as np  # noqa: PLC0415 -- only a recording needs it

    names = ("decodes", "context_tokens", "prefill_tokens", "prefill_pairs")
    kept = [name for name in names if any(getattr(step, name) for step in seen)]
    if len(seen) <= len(kept):
        why = f"{len(seen)} recorded steps are too few: {len(kept) + 1} figures must be found from them"
        raise Invalid(Fault(message=why, field="recorded"))
    while True:
        columns = [[1.0] * len(seen), *([float(getattr(step, name)) for step in seen] for name in kept)]
        found = np.linalg.lstsq(np.array(columns).T, np.array([step.seconds for step in seen]), rcond=None)[0]
        wrong = [name for name, value in zip(kept, found[1:], strict=True) if value < 0]
        if not wrong:
            break
        kept = [name for name in kept if name not in wrong]
    by_name: Mapping[str, float] = dict(zip(kept, found[1:].tolist(), strict=True))
    return Linear(
        base_seconds=max(0.0, float(found[0])),
        per_sequence_seconds=by_name.get("decodes", 0.0),
        per_context_token_seconds=by_name.get("context_tokens", 0.0),
        per_prefill_token_seconds=by_name.get("prefill_tokens", 0.0),
        per_prefill_pair_seconds=by_name.get("prefill_pairs", 0.0),
    )


def _going_on(step: StepTime) -> StepTime:
    return lambda batch: max(_LEAST_SECONDS, step(batch))
