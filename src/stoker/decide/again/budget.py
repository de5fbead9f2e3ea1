"""May the gateway try a failed request at another endpoint?

Each request lends a tenth of a retry, up to ten in store, and one more comes every five seconds. So a single fault is
always healed, while a fleet that fails as a whole gets a tenth more load and not three times as much.
"""

from typing import Final

import msgspec

SHARE: Final = 0.1  # retries a request
MOST: Final = 10.0  # in store
PER_SECOND: Final = 0.2


class Bucket(msgspec.Struct, frozen=True):
    """What is in store, and when that was so; a bucket that nobody has used is full."""

    retries: float = MOST
    at: float = 0.0


def spend(bucket: Bucket, *, requests: int, now: float) -> tuple[bool, Bucket]:
    """Take one retry if there is one; ``requests`` have come since the bucket was last looked at."""
    passed = max(0.0, now - bucket.at) if bucket.at else 0.0
    retries = min(MOST, bucket.retries + SHARE * requests + PER_SECOND * passed)
    return (True, Bucket(retries - 1, now)) if retries >= 1 else (False, Bucket(retries, now))
