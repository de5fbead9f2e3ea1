"""How long does one step of continuous batching take? The roofline's formulas for a mixture of decodes and prompts.

Scalars and no arrays: the simulation asks a hundred thousand times. A test compares it with ``roofline.times``.
"""

from collections.abc import Mapping
from dataclasses import fields

from stoker.base.errors import Fault, Invalid
from stoker.predict.batching.request import Batch
from stoker.predict.timing.roofline import ENGINES, FAMILIES, Work


class Steps:
    """The step times of one configuration: the first row of ``work``."""

    __slots__ = (
        "_cache", "_dense", "_expert", "_keep", "_linear", "_moved", "_pair", "_rest", "_sequence", "base", "stretch",
    )  # fmt: skip

    def __init__(self, work: Work, p: dict[str, float], simulation: Mapping[str, float] | None = None) -> None:
        row = {f.name: float(getattr(work, f.name)[0]) for f in fields(work)}
        engine, family = ENGINES[int(row["engine"])], FAMILIES[int(row["family"])]
        slower = p["mfu fp4"] if row["narrow"] else 1.0
        uneven = p["imbalance"] if row["spread"] else 1.0
        dense = row["dense_flops"] / (row["dense_peak"] * p["mfu"])
        sparse = row["expert_flops"] * uneven / (row["expert_peak"] * p["mfu experts"])
        many = row["ranks"] > 1
        link = row["link"] * p["link"]
        self._dense = row["dense_bytes"] / p["weights"] / row["bandwidth"]
        self._expert = row["expert_bytes"] / p["experts"] / row["bandwidth"]
        self._keep = 1 - row["chosen"] / row["experts"]
        self._linear = (dense + sparse) / slower
        each = row["hidden"] * 4 * (row["ranks"] - 1) / row["ranks"] / link
        self._moved = 2 * row["layers"] * each if many else 0.0
        self._cache = row["cache_bytes"] / (row["bandwidth"] * p["cache"])
        self._sequence = p["sequence seconds"] + row["window_bytes"] / (row["bandwidth"] * p["cache"])
        self._pair = row["pair_flops"] / (row["attention_peak"] * p["prefill attention"])
        launch = row["layers"] * p[f"layer {family}"] * p[f"engine {engine}"]
        launch += row["state_layers"] * p["state seconds"] + row["expert_layers"] * p[f"expert layer {engine}"]
        self._rest = launch + (2 * row["layers"] * p[f"latency {engine}"] if many else 0.0)
        told = simulation or {}
        # Of the time to the first token: what passes outside of steps, and how much longer the rest is than on paper.
        self.base = told.get(f"base {engine}", p[f"base {engine}"]) * row["layers"] / 60
        self.stretch = told.get(f"stretch {engine}", 1.0)

    def __call__(self, batch: Batch) -> float:
        """Seconds of a step."""
        tokens = batch.decodes + batch.prefill_tokens
        memory = self._dense
        if self._expert:
            memory += self._expert * (1 - self._keep**tokens)
        compute = tokens * self._linear
        linear = memory + 0.3 * compute if memory > compute else compute + 0.3 * memory
        own = batch.context_tokens * self._cache + batch.decodes * self._sequence + batch.prefill_pairs * self._pair
        return linear + own + tokens * self._moved + self._rest

    @property
    def token_seconds(self) -> float:
        """What the arithmetic of one token takes by itself."""
        return float(self._linear)

    def told(self) -> dict[str, float]:
        """Write the figures down, for another process."""
        return {name.lstrip("_"): float(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def of(cls, told: Mapping[str, float]) -> "Steps":
        """Make it of figures that were written down. Raises Invalid naming those that are missing."""
        names = {name.lstrip("_"): name for name in cls.__slots__}
        missing = sorted(names.keys() - told.keys())
        if missing:
            raise Invalid(Fault(message=f"step times lack {', '.join(missing)}", field="planned"))
        made = cls.__new__(cls)
        for shown, name in names.items():
            setattr(made, name, float(told[shown]))
        return made
