"""What do the gateway workers say about themselves? Read from their slots, which survive them."""

from typing import NamedTuple

from stoker.base.layout import Layout
from stoker.decide.acknowledge import Gateways
from stoker.drivers import live, spawn


def observe_gateways(layout: Layout) -> Gateways:
    """Read every worker whose process is alive; a slot that a dead one left is not one."""
    seen = [live.read(path) for path in sorted(layout.run.glob("gateway-*.live"))]
    alive = tuple(state for state in seen if state is not None and spawn.start_ticks(state.pid))
    return Gateways(workers=alive, expected=len(alive))


class PublicAddress(NamedTuple):
    """How the gateways are reached from this machine; both empty while none was ever started."""

    origin: str
    cert_file: str  # what they show; whoever asks from here believes this file and asks for no name


def public_address(layout: Layout) -> PublicAddress:
    """Find the public listener: its address in the supervisor's run file, its certificate in what the workers say."""
    background = spawn.find(layout)
    if background is None or not background.listen:
        return PublicAddress("", "")
    shown = next((w.tls_cert_file for w in observe_gateways(layout).workers if w.tls_cert_file), "")
    return PublicAddress(f"{'https' if shown else 'http'}://{background.listen}", shown)
