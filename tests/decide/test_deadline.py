"""Limits on waiting, by name."""

import pytest

from stoker.decide.deadline import late
from stoker.facts.routes import Timeouts

LIMITS = Timeouts(first_byte=10, idle=5, max_generation=60, request=100)


@pytest.mark.parametrize(
    ("limits", "waited", "asked", "silent", "want"),
    [
        (LIMITS, 9, None, None, ""),
        (LIMITS, 11, None, None, "first_byte"),
        (LIMITS, 90, 9, None, ""),
        (LIMITS, 90, 11, None, "first_byte"),
        (LIMITS, 50, 50, 4, ""),
        (LIMITS, 50, 50, 6, "idle"),
        (LIMITS, 61, 61, 0, "max_generation"),
        (LIMITS, 101, 1, 0, "max_generation"),
        (Timeouts(), 1e6, 1e6, 1, ""),  # no limit on the whole of a stream
    ],
)
def test_late(limits: Timeouts, waited: float, asked: float | None, silent: float | None, want: str) -> None:
    assert late(limits, waited=waited, asked=asked, silent=silent) == want
