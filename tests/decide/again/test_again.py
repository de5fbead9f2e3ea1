"""Retries by a budget, and poison not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.again.budget import MOST, Bucket, spend
from stoker.decide.again.poison import FORGET_SECONDS, poisonous


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 10)), max_size=200))
def test_retries_never_exceed_their_share(steps: list[tuple[int, float]]) -> None:
    bucket, now, requests, granted = Bucket(), 1.0, 0, 0
    for came, passed in steps:
        now += passed
        requests += came
        yes, bucket = spend(bucket, requests=came, now=now)
        granted += yes

    assert granted <= MOST + 0.1 * requests + 0.2 * (now - 1.0) + 1e-6
    assert 0 <= bucket.retries <= MOST


def test_a_single_fault_is_always_healed_and_a_failing_fleet_is_not_loaded_three_times() -> None:
    bucket, granted = Bucket(), 0
    for n in range(1000):  # each request fails and asks for a retry, 100 a second
        yes, bucket = spend(bucket, requests=1, now=100 + n / 100)
        granted += yes
    assert 100 <= granted <= 115


@pytest.mark.parametrize(
    ("strikes", "ago", "want"),
    [(0, 0, False), (1, 0, False), (2, 0, True), (3, FORGET_SECONDS - 1, True), (3, FORGET_SECONDS + 1, False)],
)
def test_poison(strikes: int, ago: float, want: bool) -> None:  # noqa: FBT001
    assert poisonous(strikes, struck_at=1000.0, now=1000.0 + ago) is want
