"""Who goes first, who is shed, and that nobody waits for ever: in virtual time."""

import heapq

from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.admit import INTERACTIVE_SECONDS, POINT_SECONDS, Rank, rank, sheds
from stoker.facts.routes import Timeouts


def test_people_go_before_batches_and_first_come_first_served() -> None:
    batch = rank(priority=0, interactive=False, at=0.0, arrival=1)
    person = rank(priority=0, interactive=True, at=60.0, arrival=2)
    dear = rank(priority=10, interactive=True, at=70.0, arrival=3)
    late = rank(priority=0, interactive=True, at=71.0, arrival=4)

    assert sorted([late, batch, dear, person]) == [dear, person, late, batch]


def test_a_newcomer_takes_the_place_of_a_batch_but_not_of_its_like_or_of_one_that_waited_long() -> None:
    person = rank(priority=0, interactive=True, at=100.0, arrival=9)

    assert sheds(person, rank(priority=0, interactive=False, at=0.0, arrival=1))
    assert not sheds(person, rank(priority=0, interactive=True, at=99.0, arrival=2))
    assert not sheds(person, rank(priority=0, interactive=False, at=100.0 - INTERACTIVE_SECONDS - 1, arrival=3))
    assert not sheds(rank(priority=0, interactive=False, at=100.0, arrival=9), person)


LARGEST = INTERACTIVE_SECONDS + 200 * POINT_SECONDS


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_the_lowest_of_all_has_its_turn_while_better_ones_never_stop_coming(low: int, high: int) -> None:
    """One slot, an answer a second, and a person a second: the batch still runs, after a time that is bounded."""
    queue: list[tuple[Rank, bool]] = [(rank(priority=low, interactive=False, at=0.0, arrival=0), True)]
    for second in range(1, 2000):
        heapq.heappush(queue, (rank(priority=high, interactive=True, at=float(second), arrival=second), False))
        if heapq.heappop(queue)[1]:
            assert second <= LARGEST + 1
            return
    raise AssertionError("it never ran")


def test_the_largest_head_start_is_shorter_than_a_request_may_wait() -> None:
    assert Timeouts().first_byte > LARGEST
