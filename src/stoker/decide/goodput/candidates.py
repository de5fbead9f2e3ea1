"""Which configurations are worth a thought? Cards, precisions that exist, parallelism, engine flags."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stoker.base.errors import Invalid
from stoker.predict import fits, roles
from stoker.predict.coefficients import Coefficients
from stoker.predict.fits import Ask, Plan
from stoker.predict.gpu import Gpu
from stoker.predict.overhead import Load
from stoker.predict.roles import Parts, Split
from stoker.predict.shape import Shape

_RANKS = (1, 2, 4, 8)
_LEAST_CHUNK = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A checkpoint of the model that exists."""

    name: str
    parts: Parts
    shape: Shape
    format: str
    quantization: str = ""
    on_load: bool = True  # whether an engine may narrow it while it loads

    @property
    def wide(self) -> bool:
        """Whether its weights are in 16 or 32 bits."""
        return any(dtype in ("BF16", "F16", "F32") for dtype in self.parts.by_dtype())


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Where is searched."""

    variants: Sequence[Variant]
    gpus: Sequence[Gpu]
    engines: Sequence[str] = ("vllm",)  # NAME[@VERSION]
    context_tokens: int = 0
    most_cards: int = 8  # of one replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration of one replica."""

    variant: Variant
    plan: Plan

    @property
    def precision(self) -> str:
        """In words: the checkpoint's, or what it becomes on load; and the cache's."""
        split = self.plan.ask.split
        weights = "FP8 on load" if split.quantize_to_bytes else self.variant.quantization or _widest(self.variant)
        return weights + (", FP8 cache" if self.plan.ask.kv_element_bytes == 1 else "")

    @property
    def label(self) -> str:
        """One line."""
        ask, split = self.plan.ask, self.plan.ask.split
        cards = f"{split.ranks} x {ask.gpu.name}"
        parallel = [f"{name}{size}" for name, size in (("tp", split.tensor), ("pp", split.pipeline)) if size > 1]
        parallel += [f"dp{split.data}"] if split.data > 1 else []
        parallel += ["ep"] if split.expert else []
        where = f" {' '.join(parallel)}" if parallel else ""
        return f"{cards}{where}, {self.precision}, {self.plan.load.batch_tokens} a step, {ask.engine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A configuration that falls out, and why. ``kind``: the reason without its figures, to count by."""

    label: str
    kind: str
    why: str


def asks(space: Space) -> Iterator[tuple[Variant, Ask]]:
    """Every configuration that is worth planning."""
    for variant in space.variants:
        for engine in space.engines:
            for gpu in space.gpus:
                yield from _on(space, variant, engine, gpu)


def _on(space: Space, variant: Variant, engine: str, gpu: Gpu) -> Iterator[tuple[Variant, Ask]]:
    name, _, version = engine.partition("@")
    narrow = [0.0]
    if variant.wide and variant.on_load and "fp8" in gpu.native and name in ("vllm", "sglang"):
        narrow.append(1.0)
    caches = (2.0, 1.0) if "fp8" in gpu.native and name != "llama.cpp" else (2.0,)
    for split in _splits(variant.shape, space.most_cards):
        for bytes_ in narrow:
            for cache in caches:
                for chunk in (0, _LEAST_CHUNK):
                    yield (
                        variant,
                        Ask(
                            parts=variant.parts,
                            shape=variant.shape,
                            gpu=gpu,
                            split=replace(split, quantize_to_bytes=bytes_),
                            load=Load(batch_tokens=chunk),
                            engine=name,
                            version=version,
                            kv_element_bytes=cache,
                            context_tokens=space.context_tokens,
                            quantization=variant.quantization,
                        ),
                    )


def _splits(shape: Shape, most: int) -> Iterator[Split]:
    for tensor in _RANKS:
        for pipeline in (1, 2):
            if tensor * pipeline <= most and _possible(shape, Split(tensor=tensor, pipeline=pipeline)):
                yield Split(tensor=tensor, pipeline=pipeline)
        if shape.experts and 1 < tensor <= most:
            yield from (s for s in (Split(tensor=tensor, expert=True),) if _possible(shape, s))
            yield Split(data=tensor, expert=True)


def _possible(shape: Shape, split: Split) -> bool:
    try:
        roles.check(shape, split)
    except Invalid:
        return False
    return True


def planned(variant: Variant, ask: Ask, table: Coefficients) -> Candidate | Dropped:
    """Plan one; what does not start falls out."""
    found = Candidate(variant=variant, plan=fits.plan(ask, table))
    plan = found.plan
    if plan.pool is None:
        return Dropped(label=found.label, kind="it does not start", why=plan.breaks_first)
    if plan.sessions < 1:
        return Dropped(label=found.label, kind="its cache holds no session of the context", why=plan.breaks_first)
    return found


def _widest(variant: Variant) -> str:
    by_dtype = variant.parts.by_dtype()
    return max(by_dtype, key=lambda name: by_dtype[name], default="")
