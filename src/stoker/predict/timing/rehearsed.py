"""How far is the simulation's time to the first token from the measured one?

Measured loads are run through the machine as their harness ran them: closed, ten requests a client, lengths from four
fifths of the nominal on. For each engine two numbers are left to fit: what passes outside of steps, and how much longer
prompts wait and compute than on paper. They calibrate; for models that were left out they are no better than the
formula, so the bands stay the formula's.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

import numpy as np

from stoker.predict.batching.loop import Arrival, least_loaded, run
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Limits, Request
from stoker.predict.timing.refit import Measured
from stoker.predict.timing.roofline import ENGINES, Array
from stoker.predict.timing.steps import Steps

_EVERY: Final = 5  # rows: each fifth is enough for two numbers an engine
_LARGEST: Final = 256  # requests at once: above it a run takes long and tells nothing new
_ROUNDS: Final = 10
_SHORTEST: Final = 0.8
_BASES: Final = tuple(i / 100 for i in range(41))  # seconds, for sixty layers
_STRETCHES: Final = tuple(0.8 + i / 20 for i in range(25))
_LIMITS: Final = Limits(blocks=1_000_000, batch_tokens=8192, sequences=1024)


class _Harness:
    """Clients that ask at once for what was measured."""

    def __init__(self, rng: Random, *, prompt: float, output: float, clients: int) -> None:
        self._rng = rng
        self._prompt = prompt
        self._output = output
        self._clients = clients

    def _request(self) -> Request:
        prompt, output = (size * self._rng.uniform(_SHORTEST, 1) for size in (self._prompt, self._output))
        return Request(max(1, int(prompt)), max(2, int(output)))

    def begin(self) -> list[Arrival]:
        """All of them."""
        return [Arrival(0.0, self._request()) for _ in range(self._clients)]

    def after(self, request: Request, now: float) -> Arrival:  # noqa: ARG002 -- all clients are alike
        """The next at once."""
        return Arrival(now, self._request())


def calibrate(measured: Measured, coefficients: Mapping[str, float]) -> dict[str, float]:
    """Fit ``base`` and ``stretch`` of each engine that the rows have."""
    chosen = [i for i in range(0, len(measured.ttft), _EVERY) if measured.work.batch[i] <= _LARGEST]
    rows = measured.take(chosen)
    raw = np.array([_simulated(rows, i, dict(coefficients)) for i in range(len(chosen))])
    found: dict[str, float] = {}
    for place, engine in enumerate(ENGINES):
        own = rows.work.engine == place
        if own.any():
            base, stretch = _best(raw[own], rows.work.layers[own] / 60, rows.ttft[own])
            found |= {f"base {engine}": base, f"stretch {engine}": stretch}
    return found


def _simulated(rows: Measured, i: int, coefficients: dict[str, float]) -> float:
    """The mean time to the first token of one row, without what passes outside of steps."""
    work = rows.work.take([i])
    clients = int(work.batch[0])
    rng = Random(i)  # noqa: S311 -- a load to try, no secret
    source = _Harness(rng, prompt=float(work.prompt[0]), output=float(work.output[0]), clients=clients)
    machine = Machine(_LIMITS, Steps(work, coefficients))
    jobs = run([machine], source, least_loaded([machine]), requests=_ROUNDS * clients).jobs
    return sum(job.ttft for job in jobs) / len(jobs)


def _best(raw: Array, layers: Array, measured: Array) -> tuple[float, float]:
    """The pair with the smallest median error."""
    pairs = [(base, stretch) for base in _BASES for stretch in _STRETCHES]
    errors = [float(np.median(abs((raw * stretch + base * layers) / measured - 1))) for base, stretch in pairs]
    base, stretch = pairs[int(np.argmin(errors))]
    return base, round(stretch, 3)
