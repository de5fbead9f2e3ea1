"""What do the gateway workers say about themselves? Read from their slots, which survive them."""

from stoker.base.layout import Layout
from stoker.decide.acknowledge import Gateways
from stoker.drivers import live, spawn


def observe_gateways(layout: Layout) -> Gateways:
    """Read every worker whose process is alive; a slot that a dead one left is not one."""
    seen = [live.read(path) for path in sorted(layout.run.glob("gateway-*.live"))]
    alive = tuple(state for state in seen if state is not None and spawn.start_ticks(state.pid))
    return Gateways(workers=alive, expected=len(alive))
