"""Which limit on waiting is over? Named as the outcome's detail: first_byte, idle or max_generation.

There is no limit on the whole of a stream unless a manifest asked for one: a healthy answer may take an hour.
"""

from stoker.facts.routes import Timeouts


def late(limits: Timeouts, *, waited: float, asked: float | None, silent: float | None) -> str:
    """Name the limit that is over, or nothing. All in seconds.

    ``waited``: since the request came. ``asked``: since an engine was asked; None while it waits for a slot.
    ``silent``: since the engine last said something; None while it has said nothing.
    """
    if asked is None:
        return "first_byte" if waited > limits.first_byte else ""
    if limits.request is not None and waited > limits.request:
        return "max_generation"
    if limits.max_generation is not None and asked > limits.max_generation:
        return "max_generation"
    if silent is None:
        return "first_byte" if asked > limits.first_byte else ""
    return "idle" if silent > limits.idle else ""
