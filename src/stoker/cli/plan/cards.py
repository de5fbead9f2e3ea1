"""The card that a command names, and what is known of engines on it: the catalogue, and own starts."""

from typing import TYPE_CHECKING

from stoker.base.units import parse_bytes

if TYPE_CHECKING:
    from stoker.cli.settings import Settings
    from stoker.predict.coefficients import Coefficients
    from stoker.predict.gpu import Gpu


def find(name: str, card: str = "") -> "Gpu":
    """Find a card; ``card`` is its memory as its runtime sees it. ``cpu`` is this machine."""
    import msgspec

    from stoker.drivers import figures
    from stoker.predict import gpu

    if name.lower() == "cpu":
        return gpu.Gpu(name="cpu", total_bytes=parse_bytes(card) if card else _memory(), bandwidth_gbs=0.0, native=())
    found = gpu.find(figures.gpus(), name)
    return msgspec.structs.replace(found, total_bytes=parse_bytes(card), measured=True) if card else found


def _memory() -> int:
    from pathlib import Path

    from stoker.drivers import devices

    return devices.survey(Path("/")).memory_bytes


def coefficients(settings: "Settings") -> "Coefficients":
    """The coefficients of this version, with what own starts have taught."""
    from stoker.drivers import figures

    if not settings.layout.starts.exists():
        return figures.coefficients()
    from stoker.drivers.figures import starts
    from stoker.predict import seen

    return seen.taught(figures.coefficients(), starts.read(settings.layout.starts))
