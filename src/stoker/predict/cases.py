"""What was measured, as the case files tell it: models in compact rows, and start-up logs."""

from dataclasses import dataclass

import msgspec

from stoker.predict import estimate, roles
from stoker.predict.overhead import Load
from stoker.predict.roles import Part, Parts, RankWeights, Role, Split
from stoker.predict.shape import Attends, Layer, Shape

GIB = 2**30


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model: the file's short names on the left of each ``name``."""

    model: str
    layers: int = msgspec.field(name="L")
    hidden: int = msgspec.field(name="H")
    intermediate: int = msgspec.field(name="I")
    vocab: int = msgspec.field(name="V")
    heads: int = msgspec.field(name="nh")
    kv_heads: int = msgspec.field(name="kv", default=0)
    head_dim: int = msgspec.field(name="hd", default=0)
    experts: int = msgspec.field(name="E", default=0)
    experts_per_token: int = msgspec.field(name="k", default=0)
    expert_intermediate: int = msgspec.field(name="Im", default=0)
    shared: int = msgspec.field(name="sh", default=0)
    mla: tuple[int, int] | None = None
    swa: tuple[int, int] | None = None
    chunk: tuple[int, int] | None = None
    gdn: tuple[int, int, int, int, int, int, int] | None = None
    gated: int = 1
    mm: int = 0
    context: int = 0

    @property
    def shape(self) -> Shape:
        """The shape that this row describes."""
        full = Layer(attends=Attends.FULL, kv_heads=self.kv_heads, head_dim=self.head_dim, experts=bool(self.experts))
        layers = (*self._special(full), *[full] * self.layers)[: self.layers]
        return Shape(
            layers=layers,
            hidden=self.hidden,
            intermediate=self.intermediate,
            vocab=self.vocab,
            heads=self.heads,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            expert_intermediate=self.expert_intermediate,
            shared_experts=self.shared,
            vision=bool(self.mm),
            gated=bool(self.gated),
            context_tokens=self.context,
        )

    def _special(self, full: Layer) -> list[Layer]:
        """Layers that are not of the plain kind; the rest is filled up with plain ones."""
        sparse = full.experts
        if self.mla is not None:
            rank, rope = self.mla
            return [Layer(attends=Attends.LATENT, latent_rank=rank, rope_dim=rope, experts=sparse)] * self.layers
        for kind, told in ((Attends.SLIDING, self.swa), (Attends.CHUNKED, self.chunk)):
            if told is not None:
                one = Layer(
                    attends=kind, kv_heads=full.kv_heads, head_dim=full.head_dim, window=told[1], experts=sparse
                )
                return [one] * told[0]
        if self.gdn is None:
            return []
        count, _, keys, values, rows, columns, width = self.gdn
        one = Layer(
            attends=Attends.LINEAR,
            conv_dim=2 * keys * rows + values * columns,
            conv_width=width,
            state_heads=values,
            state_rows=rows,
            state_columns=columns,
            experts=sparse,
        )
        return [one] * count


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One start-up log. None: the log does not say it."""

    id: str
    engine: str
    model: str
    version: str | None = None
    gpu: str | None = None
    gpu_mem_gib: float | None = None
    tp: int | None = None
    pp: int | None = None
    util: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    dtype: str | None = None
    quant: str | None = None
    kv_dtype: str | None = None
    block_size: int | None = None
    checkpoint_gib: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    kv_cache_gib: float | None = None
    kv_cache_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start that says enough to be judged."""

    row: LogRow
    shape: Shape
    split: Split
    load: Load
    card_bytes: float
    version: str
    cache_gib: float

    @property
    def weights(self) -> RankWeights | None:
        """From the checkpoint's size alone, or None where the log does not tell it."""
        if not self.row.checkpoint_gib:
            return None
        reckoned = estimate.parts(self.shape)
        size = int(self.row.checkpoint_gib * GIB)
        # A quantised checkpoint has other bytes in each role, and the same proportions for what is divided.
        scale = min(1.0, size / reckoned.total_bytes)
        parts = [
            Part(role=p.role, layer=p.layer, dtype=p.dtype, size_bytes=int(p.size_bytes * scale))
            for p in reckoned.parts
        ]
        rest = size - sum(part.size_bytes for part in parts)
        other = Role.VISION if self.shape.vision else Role.DENSE
        parts.append(Part(role=other, layer=-1, dtype="BF16", size_bytes=rest))
        return roles.rank(Parts(parts=tuple(parts), estimated=True), self.shape, self.split)

    @property
    def logged_weights(self) -> RankWeights | None:
        """As the engine logged them."""
        size = self.row.weights_gib
        return RankWeights(by_role={Role.DENSE: size * GIB}) if size else None


def start(row: LogRow, model: ModelRow | None) -> Start | None:
    """A vLLM log with a model that is known and all that the formulas need; None for the others."""
    told = (row.gpu_mem_gib, row.util, row.max_num_seqs, row.max_num_batched_tokens, row.kv_cache_gib)
    if model is None or row.engine != "vllm" or not all(told):
        return None
    version = row.version if row.version and row.version[0].isdigit() else "0.11"  # "unstated (~0.11)"
    load = Load(
        utilization=row.util or 0.0,
        batch_tokens=row.max_num_batched_tokens or 0,
        sequences=row.max_num_seqs or 0,
        fused_experts=row.quant == "mxfp4",
    )
    split = Split(
        tensor=row.tp or 1,
        pipeline=row.pp or 1,
        element_bytes=4 if row.dtype == "float32" else 2,
        quantize_to_bytes=1.0 if row.quant == "fp8" else 0.0,
    )
    return Start(
        row=row,
        shape=model.shape,
        split=split,
        load=load,
        card_bytes=(row.gpu_mem_gib or 0.0) * GIB,
        version=version,
        cache_gib=row.kv_cache_gib or 0.0,
    )
