"""What time is it? The only place that asks the machine."""

import time


def now() -> float:
    """Seconds since the epoch (UTC). For records and conditions; it may jump."""
    return time.time()


def mono() -> float:
    """Seconds on a clock that never jumps. For durations inside one boot; equal over processes."""
    return time.monotonic()


def rfc3339(seconds: float) -> str:
    """Write an epoch time as ``2026-11-30T12:00:00Z``, as Kubernetes does."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def sleep(seconds: float) -> None:
    """Wait, in a process that has nothing else to do."""
    time.sleep(seconds)
