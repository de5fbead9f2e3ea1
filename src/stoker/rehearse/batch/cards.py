"""What would the cards say while this batch runs? A page of the DCGM exporter, derived from the machine's own work.

``GPU_UTIL`` only says whether anything ran at all: 99 % beside tensor cores that are busy a tenth of the time is the
usual state of a small batch, which reads all weights for a few tokens.
"""

from collections.abc import Iterator
from typing import Final

from stoker.predict.batching.machine import Gauges
from stoker.rehearse.batch.clockwork import Clockwork
from stoker.rehearse.batch.pages import used
from stoker.rehearse.batch.rig import Cards, Rig

_MIB: Final = 1 << 20
_IDLE_WATTS: Final = 0.15  # of the most
_WATTS: Final = 700.0
_RUNTIME_BYTES: Final = 1 << 30  # what the driver and the runtime hold


class Exporter:
    """Looks at the machine from scrape to scrape."""

    def __init__(self, clockwork: Clockwork, rig: Rig) -> None:
        self._clockwork = clockwork
        self._rig = rig
        self._before = (0.0, Gauges())
        self._joules = 0.0

    def page(self) -> str:
        """Write the page of the time since the last one."""
        cards = self._rig.cards
        if cards is None:
            return ""
        now, gauges = self._clockwork.now, self._clockwork.machine.gauges
        then, old = self._before
        seconds = max(1e-9, now - then)
        busy = min(1.0, (gauges.busy - old.busy) / seconds)
        tokens = (gauges.decoded_tokens - old.decoded_tokens + gauges.prefilled_tokens - old.prefilled_tokens) / seconds
        steps = _steps(gauges, old) / seconds
        tensor = _share(tokens * cards.token_flops, cards.flops_per_second, busy)
        memory = _share(steps * cards.weights_bytes, cards.bandwidth_bytes_per_second, busy)
        self._before = (now, Gauges(**{name: getattr(gauges, name) for name in Gauges.__slots__}))
        watts = _WATTS * (_IDLE_WATTS + (1 - _IDLE_WATTS) * max(0.6 * busy, tensor))
        self._joules += watts * seconds
        held = cards.weights_bytes + cards.cache_bytes + _RUNTIME_BYTES
        rows = {
            "DCGM_FI_DEV_GPU_UTIL": round(busy * 100),
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": busy,
            "DCGM_FI_PROF_SM_ACTIVE": busy * 0.9,
            "DCGM_FI_PROF_SM_OCCUPANCY": busy * 0.25,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": tensor,
            "DCGM_FI_PROF_DRAM_ACTIVE": memory,
            "DCGM_FI_DEV_MEM_COPY_UTIL": round(memory * 100),
            "DCGM_FI_DEV_FB_USED": round(held / _MIB),
            "DCGM_FI_DEV_FB_FREE": round(max(0.0, cards.memory_bytes - held) / _MIB),
            "DCGM_FI_DEV_GPU_TEMP": round(35 + 45 * max(0.6 * busy, tensor)),
            "DCGM_FI_DEV_POWER_USAGE": watts,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": round(self._joules * 1000),
            "DCGM_FI_DEV_XID_ERRORS": 0,
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
        }
        return "".join(f"{line}\n" for name, value in rows.items() for line in _lines(name, float(value), cards))

    @property
    def cache_used(self) -> float:
        """The share of the cache that running requests hold."""
        return used(self._clockwork.machine)


def _steps(gauges: Gauges, old: Gauges) -> float:
    return float(gauges.steps - old.steps)


def _share(work: float, most: float, busy: float) -> float:
    return min(busy, work / most) if most else 0.0


def _lines(name: str, value: float, cards: Cards) -> Iterator[str]:
    kind = "counter" if name.endswith(("CONSUMPTION", "TOTAL")) else "gauge"
    yield f"# TYPE {name} {kind}"
    for number in range(cards.count):
        label = (
            f'gpu="{number}",UUID="GPU-rehearsal-{number}",device="nvidia{number}",modelName="{cards.name}",'
            'Hostname="rehearsal"'
        )
        yield f"{name}{{{label}}} {value:g}"
