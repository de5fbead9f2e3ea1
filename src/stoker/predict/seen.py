"""What did a real start take beside what was predicted, why, and what does that teach the next plan?

Each start becomes a case. Of all cases of one engine, version and card the median of what they took beyond the
prediction becomes a term of the next budget; where there are enough of them, their spread becomes its band.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import msgspec

from stoker.predict import fits
from stoker.predict.coefficients import GIB, Coefficients, Learned, Residual, number
from stoker.predict.fits import Plan

_FEW: Final = 3  # cases before their own spread is believed
_CLOSE: Final = 0.02  # relative: below it there is nothing to explain
_TWICE: Final = (1.8, 2.2)
_HALF: Final = (0.45, 0.55)


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start. Bytes are of one rank; None: nobody saw it. ``predicted_*`` without what was learned before."""

    at: float
    engine: str
    version: str
    gpu: str
    model: str
    context_tokens: int
    predicted_weight_bytes: float
    predicted_cache_bytes: float
    predicted_cache_tokens: int
    weight_bytes: float | None = None
    cache_bytes: float | None = None
    cache_tokens: int | None = None
    used_bytes: float | None = None  # by the whole process
    predicted_used_bytes: float = 0.0
    seen_context_tokens: int | None = None
    seen_sequences: int | None = None
    source: str = ""

    @property
    def extra_bytes(self) -> float | None:
        """What a rank took beyond the prediction: less is left for the cache, or the process is larger."""
        if self.cache_bytes is not None and self.engine != "llama.cpp":
            weights = 0.0 if self.weight_bytes is None else self.weight_bytes - self.predicted_weight_bytes
            return self.predicted_cache_bytes - self.cache_bytes - weights
        if self.used_bytes is not None:
            return self.used_bytes - self.predicted_used_bytes
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One figure, predicted beside observed. ``why``: the likely cause of a difference."""

    name: str
    predicted: float
    observed: float | None
    unit: str
    why: str = ""

    @property
    def error(self) -> float | None:
        """Relative; None: it was not observed."""
        return self.predicted / self.observed - 1 if self.observed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a start can be asked for, as a plan has it; of one rank."""

    weights: float
    cache: float
    tokens: int
    used: float


def expected(plan: Plan, *, cache_bytes: float = 0.0) -> Expected:
    """Read it from a plan that was made by the formulas alone; ``cache_bytes``: as the engine was told, 0: a share."""
    budget = plan.budget
    if cache_bytes:
        told = fits.holds(plan, cache_bytes)
        return Expected(
            weights=plan.weights.total_bytes, cache=cache_bytes, tokens=told.logged_tokens if told else 0, used=0.0
        )
    return Expected(
        weights=plan.weights.total_bytes,
        cache=budget.cache.size_bytes,
        tokens=plan.pool.logged_tokens if plan.pool else 0,
        used=sum(term.size_bytes for term in budget.terms if term.name != "left free"),
    )


def sides(case: Case) -> list[Side]:
    """Compare, with the likely cause of each difference."""
    token_bytes = case.predicted_cache_bytes / case.predicted_cache_tokens if case.predicted_cache_tokens else 0.0
    found = [
        Side(
            name="weights", predicted=case.predicted_weight_bytes / GIB, unit="GiB",
            observed=_gib(case.weight_bytes), why=_weights(case),
        ),
        Side(
            name="KV cache", predicted=case.predicted_cache_bytes / GIB, unit="GiB",
            observed=_gib(case.cache_bytes), why=_cache(case),
        ),
        Side(
            name="KV tokens", predicted=case.predicted_cache_tokens, unit="tokens",
            observed=case.cache_tokens, why=_tokens(case, token_bytes),
        ),
        Side(
            name="context", predicted=case.context_tokens, unit="tokens",
            observed=case.seen_context_tokens, why=_context(case),
        ),
        Side(
            name="whole process", predicted=case.predicted_used_bytes / GIB, unit="GiB",
            observed=_gib(case.used_bytes), why=_process(case),
        ),
    ]  # fmt: skip
    return [side for side in found if side.observed is not None]


def _gib(size: float | None) -> float | None:
    return None if size is None else size / GIB


def _ratio(observed: float | None, predicted: float) -> float:
    return observed / predicted if observed and predicted else 1.0


def _weights(case: Case) -> str:
    ratio = _ratio(case.weight_bytes, case.predicted_weight_bytes)
    if abs(ratio - 1) <= _CLOSE:
        return ""
    if _HALF[0] <= ratio <= _HALF[1]:
        return "half: the engine quantised while it loaded (--quantization), or another checkpoint was given"
    if _TWICE[0] <= ratio <= _TWICE[1]:
        return "twice: loaded in a wider dtype, or not divided over the ranks that were named (--tp)"
    more = "draft heads, a vision tower on every rank, or copies that the engine makes"
    return (
        f"larger: {more}" if ratio > 1 else "smaller: parts that are not loaded, such as draft heads or a vision tower"
    )


def _cache(case: Case) -> str:
    if abs(_ratio(case.cache_bytes, case.predicted_cache_bytes) - 1) <= _CLOSE:
        return ""
    wrong = case.weight_bytes is not None and abs(_ratio(case.weight_bytes, case.predicted_weight_bytes) - 1) > _CLOSE
    if wrong:
        return "as the weights differ: what they take more, the cache has less"
    smaller = (case.cache_bytes or 0.0) < case.predicted_cache_bytes
    if case.engine == "llama.cpp":
        return "the cache's dtype differs (--kv-dtype), or windows of the model are kept whole"
    if smaller:
        return "another process holds memory of the card, graphs take more, or the share or batch differs from the plan"
    return "the share, batch tokens or sequences differ from the plan (--utilization, --batch-tokens, --sequences)"


def _tokens(case: Case, token_bytes: float) -> str:
    ratio = _ratio(case.cache_tokens, case.predicted_cache_tokens)
    if abs(ratio - 1) <= _CLOSE:
        return ""
    if case.cache_bytes and token_bytes and case.cache_tokens:
        seen = case.cache_bytes / case.cache_tokens / token_bytes
        if _HALF[0] <= seen <= _HALF[1]:
            return "a token takes half of what was planned: the cache is in FP8 (--kv-dtype fp8)"
        if _TWICE[0] <= seen <= _TWICE[1]:
            return "a token takes twice of what was planned: the cache is in 16 bits, or is not divided over ranks"
        if abs(seen - 1) > _CLOSE:
            return (
                "a token takes other than planned: layers of several kinds, in a layout that this version has changed"
            )
    return "as the cache differs in bytes"


def _context(case: Case) -> str:
    if case.seen_context_tokens in (None, case.context_tokens):
        return ""
    return "the engine was started with another context: give it with --context"


def _process(case: Case) -> str:
    if abs(_ratio(case.used_bytes, case.predicted_used_bytes) - 1) <= _CLOSE:
        return ""
    return "the program itself, its libraries and buffers: learned for this engine, version and card"


def taught(table: Coefficients, cases: Sequence[Case]) -> Coefficients:
    """Put what was learned beside the coefficients."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for case in cases:
        if case.extra_bytes is not None:
            groups.setdefault((case.engine, release(case.version), case.gpu), []).append(case.extra_bytes / GIB)
    learned = [_learned(*key, sorted(extra)) for key, extra in groups.items()]
    return msgspec.structs.replace(table, learned=tuple(learned))


def _learned(engine: str, version: str, gpu: str, extra: list[float]) -> Learned:
    middle = median(extra)
    spread = None
    if len(extra) >= _FEW:
        spread = Residual(low_gib=middle - extra[-1], middle_gib=0.0, high_gib=middle - extra[0], cases=len(extra))
    return Learned(engine=engine, version=version, gpu=gpu, extra_gib=middle, cases=len(extra), spread=spread)


def release(version: str) -> str:
    """The part of a version within which overheads stay: 0.19 of 0.19.1."""
    return ".".join(str(part) for part in number(version)[:2]) if version and version.lstrip("v")[:1].isdigit() else ""
