"""Which accelerators are there? Memory as the runtime sees it, never the marketing figure."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

import msgspec

from stoker.base.errors import Fault, Invalid


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a card and hour, on demand, as seen on ``date``."""

    low_usd: float
    high_usd: float
    date: str
    source: str


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of card. Teraflops are dense; ``link_gbs``: in one direction, 0 where only PCIe joins cards."""

    name: str
    total_bytes: int
    bandwidth_gbs: float
    native: tuple[str, ...]
    bf16_tflops: float = 0.0
    fp8_tflops: float = 0.0
    fp4_tflops: float = 0.0
    int8_tflops: float = 0.0
    link_gbs: float = 0.0
    link: str = ""
    measured: bool = True  # False: the memory is reckoned
    power_watts: float = 0.0
    price: Price | None = None
    sources: tuple[str, ...] = ()

    def ridge(self, tflops: float) -> float:
        """FLOPs that the card does in the time that it reads one byte: below it memory binds, above it arithmetic."""
        return tflops * 1e12 / (self.bandwidth_gbs * 1e9)


def find(catalogue: Sequence[Gpu], name: str, *, field: str = "--gpu") -> Gpu:
    """Find a card by its name or by a beginning that only one has; raises Invalid with the nearest names."""
    asked = _plain(name)
    exact = [gpu for gpu in catalogue if _plain(gpu.name) == asked]
    begins = exact or [gpu for gpu in catalogue if _plain(gpu.name).startswith(asked)] if asked else []
    if not begins:
        by_plain = {_plain(gpu.name): gpu.name for gpu in catalogue}
        short = {plain.rstrip("gb0123456789") or plain: full for plain, full in by_plain.items()}
        close = get_close_matches(asked, [*by_plain, *short], n=4, cutoff=0.4)
        names = dict.fromkeys((by_plain | short)[each] for each in close)
        hint = f"nearest: {', '.join(names)}" if names else f"known: {', '.join(gpu.name for gpu in catalogue)}"
        raise Invalid(Fault(message=f"there is no GPU '{name}' in the catalogue", field=field, hint=hint))
    return begins[0]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("nvidia").removeprefix("amd"))
