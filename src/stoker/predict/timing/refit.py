"""Which efficiencies fit measured times best? Damped least squares on the logarithm of times, robust against outliers.

The result depends on the rows alone: no randomness, no library version of a solver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stoker.predict.coefficients import Speed
from stoker.predict.timing.roofline import START, Array, Work, times

_STEPS: Final = 60
_SOFT: Final = 0.15  # relative errors beyond this count in proportion, no longer in square
_PULL: Final = 5.0  # how strongly a coefficient without evidence stays where it began
_NUDGE: Final = 1e-4
_LATE: Final = 0.7  # weight of TTFT beside TPOT: it scatters more


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Configurations with what was measured of them, in seconds, and what they belong to."""

    work: Work
    tpot: Array
    ttft: Array
    model: tuple[str, ...]
    system: tuple[str, ...]
    deployment: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()

    def take(self, rows: Sequence[int]) -> "Measured":
        """Some of the rows."""
        return Measured(
            work=self.work.take(rows),
            tpot=self.tpot[np.asarray(rows)],
            ttft=self.ttft[np.asarray(rows)],
            model=tuple(self.model[i] for i in rows),
            system=tuple(self.system[i] for i in rows),
            deployment=tuple(self.deployment[i] for i in rows),
            lengths=tuple(self.lengths[i] for i in rows),
        )


def fit(measured: Measured, start: dict[str, float] | None = None) -> dict[str, float]:
    """Fit all coefficients; they stay positive."""
    names = list(START)
    begun = np.log([(start or START)[name] for name in names])
    prior = np.log([START[name] for name in names])
    at, damping = begun.copy(), 1e-2
    found = _residuals(measured, names, at)
    cost = _cost(found, at - prior)
    for _ in range(_STEPS):
        moved = np.array([_residuals(measured, names, at + _NUDGE * unit) for unit in np.eye(len(names))])
        slope = (moved - found).T / _NUDGE
        weight = 1 / np.sqrt(1 + (found / _SOFT) ** 2)
        square = slope.T @ (weight[:, None] * slope) + _PULL * np.eye(len(names))
        down = slope.T @ (weight * found) + _PULL * (at - prior)
        step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -down)
        ahead = at + np.clip(step, -0.7, 0.7)
        tried = _residuals(measured, names, ahead)
        reached = _cost(tried, ahead - prior)
        if reached < cost:
            done = cost - reached < 1e-7 * cost
            at, found, cost, damping = ahead, tried, reached, damping / 3
            if done:
                break
        else:
            damping *= 4
    return {name: float(np.exp(value)) for name, value in zip(names, at, strict=True)}


def _residuals(measured: Measured, names: Sequence[str], at: Array) -> Array:
    found = times(measured.work, dict(zip(names, np.exp(at).tolist(), strict=True)))
    return np.concatenate([np.log(found.tpot / measured.tpot), _LATE * np.log(found.ttft / measured.ttft)])


def _cost(found: Array, away: Array) -> float:
    robust = _SOFT**2 * 2 * (np.sqrt(1 + (found / _SOFT) ** 2) - 1)
    return float(robust.sum() + _PULL * (away**2).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of rows that the fit has not seen, by row."""

    tpot: Array
    ttft: Array
    group: tuple[str, ...]


def leave_out(measured: Measured, groups: Sequence[str]) -> Errors:
    """Predict every group of rows by a fit on all other groups."""
    tpot, ttft = np.zeros(len(groups)), np.zeros(len(groups))
    for name in sorted(set(groups)):
        inside = [i for i, group in enumerate(groups) if group == name]
        outside = [i for i, group in enumerate(groups) if group != name]
        if not outside:
            continue
        held = measured.take(inside)
        found = times(held.work, fit(measured.take(outside)))
        tpot[inside] = found.tpot / held.tpot - 1
        ttft[inside] = found.ttft / held.ttft - 1
    return Errors(tpot=tpot, ttft=ttft, group=tuple(groups))


def summary(measured: Measured) -> Speed:
    """Fit all rows; the band comes from models that were left out."""
    errors = leave_out(measured, [family(name) for name in measured.model])
    tpot_low, tpot_high = (float(np.quantile(1 / (1 + errors.tpot), share)) for share in (0.05, 0.95))
    ttft_low, ttft_high = (float(np.quantile(1 / (1 + errors.ttft), share)) for share in (0.05, 0.95))
    return Speed(
        version=1,
        source="measured rows of tests/data/planner/latency_rows.csv; band: each model left out in turn",
        rows=len(measured.tpot),
        coefficients={name: float(f"{value:.6g}") for name, value in fit(measured).items()},
        tpot_low=round(tpot_low, 3),
        tpot_high=round(tpot_high, 3),
        ttft_low=round(ttft_low, 3),
        ttft_high=round(ttft_high, 3),
        prompt_low=float(measured.work.prompt.min()),
        prompt_high=float(measured.work.prompt.max()),
        batch_high=float(measured.work.batch.max()),
        ranks_high=int(measured.work.ranks.max()),
    )


def anchored(errors: Errors, measured: Measured, groups: Sequence[str]) -> Errors:
    """The errors that are left once the middle row of each group was measured; groups of one row are left out."""
    kept: list[int] = []
    tpot, ttft = errors.tpot.copy(), errors.ttft.copy()
    for name in sorted(set(groups)):
        rows = sorted(
            (i for i, group in enumerate(groups) if group == name), key=lambda i: float(measured.work.batch[i])
        )
        if len(rows) < 2:
            continue
        anchor = rows[len(rows) // 2]
        others = [i for i in rows if i != anchor]
        tpot[others] = (1 + tpot[others]) / (1 + tpot[anchor]) - 1
        ttft[others] = (1 + ttft[others]) / (1 + ttft[anchor]) - 1
        kept += others
    return Errors(tpot=tpot[kept], ttft=ttft[kept], group=tuple(groups[i] for i in kept))


def family(model: str) -> str:
    """A model without its precision and tuning: what one architecture and size has in common."""
    name = model.rsplit("/", maxsplit=1)[-1].lower()
    for word in ("-instruct", "-fp8", "-nvfp4", "nvidia-", "-a22b", "-a17b"):
        name = name.replace(word, "")
    return "deepseek-v3" if name.startswith("deepseek") else name
