"""How wrong is the memory model, and what would the logs make of its coefficients?

The coefficients are medians of what each log implies, so that one odd log moves nothing. Leave-one-model-out: a log is
judged by coefficients that were fitted without any log of its model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import msgspec

from stoker.predict import overhead
from stoker.predict.cases import Start
from stoker.predict.coefficients import GIB, Memory, Residual
from stoker.predict.gpu import Gpu
from stoker.predict.overhead import Budget
from stoker.predict.roles import RankWeights

_ROUNDS: Final = 2  # which term decides depends on the coefficients; it settles at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One log beside its prediction."""

    start: Start
    predicted_gib: float

    @property
    def error(self) -> float:
        """Relative, without its sign."""
        return abs(self.predicted_gib / self.start.cache_gib - 1)


def predict(start: Start, row: Memory, weights: RankWeights) -> Budget:
    """The budget that the planner would have printed for a start."""
    card = Gpu(name=start.row.gpu or "", total_bytes=int(start.card_bytes), bandwidth_gbs=1.0, native=())
    return overhead.vllm(card, weights, start.shape, split=start.split, load=start.load, row=row)


def fit(starts: Sequence[Start], row: Memory) -> Memory:
    """Fit the coefficients of one version range, and the residuals of its cache."""
    whole = [start for start in starts if start.split.pipeline == 1]
    for _ in range(_ROUNDS):
        dense = [start for start in whole if not start.shape.experts and start.row.activation_gib]
        sampled = [start for start in dense if _samples(start, row)]
        row = msgspec.structs.replace(
            row,
            sampler_bytes=_middle(sampled, _implied_sampler, row.sampler_bytes),
            forward_hidden=_middle([s for s in dense if s not in sampled], _implied_hidden, row.forward_hidden),
        )
    one = [start for start in whole if start.split.tensor == 1]
    many = [start for start in whole if start.split.tensor > 1]
    row = msgspec.structs.replace(
        row,
        non_torch_gib=_middle(one, _non_torch, row.non_torch_gib),
        non_torch_many_gib=_middle(many, _non_torch, row.non_torch_many_gib),
    )
    return msgspec.structs.replace(row, residual=residual(whole, row))


def residual(starts: Sequence[Start], row: Memory) -> Residual:
    """The 5th, 50th and 95th percentile of logged minus predicted cache, in GiB."""
    found = sorted(
        start.cache_gib - predict(start, row, weights).cache.size_bytes / GIB
        for start in starts
        if (weights := start.weights or start.logged_weights) is not None
    )
    if not found:
        return row.residual
    last = len(found) - 1
    low, middle, high = (found[round(last * share)] for share in (0.05, 0.5, 0.95))
    return Residual(low_gib=round(low, 3), middle_gib=round(middle, 3), high_gib=round(high, 3), cases=len(found))


def judge(
    starts: Sequence[Start], row: Memory, weights: Callable[[Start], RankWeights | None], *, refit: bool = True
) -> list[Judged]:
    """Judge each start by coefficients that its model did not help to fit."""
    judged = []
    kept: dict[str, Memory] = {}
    for start in starts:
        found = weights(start)
        if found is None:
            continue
        name = start.row.model
        if name not in kept:
            kept[name] = fit([other for other in starts if other.row.model != name], row) if refit else row
        judged.append(Judged(start=start, predicted_gib=predict(start, kept[name], found).cache.size_bytes / GIB))
    return judged


def _samples(start: Start, row: Memory) -> bool:
    sampler = overhead.sampler_bytes(start.shape, start.split, start.load, row)
    return sampler >= overhead.forward_bytes(start.shape, start.split, start.load, row)


def _implied_sampler(start: Start) -> float:
    hidden = start.load.batch_tokens * start.shape.hidden * start.split.element_bytes
    logits = start.load.sequences * start.shape.vocab
    return ((start.row.activation_gib or 0.0) * GIB - hidden) / logits - start.split.element_bytes


def _implied_hidden(start: Start) -> float:
    matrices = 3 if start.shape.gated else 2
    width = (start.row.activation_gib or 0.0) * GIB / (start.load.batch_tokens * start.split.element_bytes)
    return (width - matrices * start.shape.intermediate / start.split.tensor) / start.shape.hidden


def _non_torch(start: Start) -> float:
    return start.row.non_torch_gib or 0.0


def _middle(starts: Sequence[Start], implied: Callable[[Start], float], otherwise: float) -> float:
    return round(median(implied(start) for start in starts), 4) if starts else otherwise
