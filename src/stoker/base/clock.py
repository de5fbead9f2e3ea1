"""What time is it? The only place that asks the machine."""

import time

# The functions themselves and no wrappers: the gateway asks a dozen times a request.

now = time.time
"""Seconds since the epoch (UTC). For records and conditions; it may jump."""

mono = time.monotonic
"""Seconds on a clock that never jumps: for durations inside one boot; equal over processes."""


def rfc3339(seconds: float) -> str:
    """Write an epoch time as ``2026-11-30T12:00:00Z``, as Kubernetes does."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def sleep(seconds: float) -> None:
    """Wait, in a process that has nothing else to do."""
    time.sleep(seconds)
