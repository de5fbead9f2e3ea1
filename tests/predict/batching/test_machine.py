"""Continuous batching step by step: cases worked out by hand, and what must hold for every load."""

import itertools
from collections.abc import Sequence
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.predict.batching.loop import Arrival, least_loaded, run
from stoker.predict.batching.machine import Machine, Step
from stoker.predict.batching.request import Batch, Job, Limits, Request


def clock(batch: Batch) -> float:
    """One second a step, a hundredth a prompt token: sums that can be done in the head."""
    return 1.0 + batch.prefill_tokens / 100


def machine(*, blocks: int = 100, size: int = 4, batch: int = 100, sequences: int = 8, cache: bool = True) -> Machine:
    limits = Limits(
        blocks=blocks, block_tokens=size, batch_tokens=batch, sequences=sequences, prefix_cache=cache, queue=0
    )
    return Machine(limits, clock)


def drain(made: Machine, now: float = 0.0, *, most: int = 1 << 30) -> list[Step]:
    """Step until nothing is left; the blocks must add up after each step."""
    steps = []
    while (step := made.step(now, most=most)) is not None:
        now += step.seconds
        steps.append(step)
        assert made.blocks.free + made.held + made.blocks.kept == made.blocks.total
    return steps


def submit(made: Machine, *requests: Request, now: float = 0.0) -> list[Job]:
    jobs = [made.submit(request, now) for request in requests]
    return [job for job in jobs if job is not None]


def test_one_request_by_hand() -> None:
    made = machine()
    (job,) = submit(made, Request(100, 5))
    drain(made)

    assert (job.first, job.finished) == (2.0, 6.0)  # 1 + 100/100, then four steps of a second
    assert job.tpot == 1.0


def test_a_long_prompt_is_cut_and_decodes_go_first() -> None:
    made = machine(batch=50)
    (first,) = submit(made, Request(40, 10))
    begun = made.step(0.0)
    (second,) = submit(made, Request(98, 2))
    pieces = [made.step(10.0 * i, most=1) for i in range(1, 4)]

    assert begun is not None
    assert [step.prefilled for step in pieces if step] == [49, 49, 0]  # one token of the budget is the first's
    assert second.first == 20.0 + 1.49
    assert made.tokens(first) == 4


def test_the_sequence_limit_makes_the_third_wait() -> None:
    made = machine(sequences=2)
    one, two, three = submit(made, Request(10, 5), Request(10, 9), Request(10, 3))
    drain(made)

    assert one.first == two.first < one.finished < three.first < two.finished
    assert made.gauges.blocked_sequences > 0


def test_a_missing_block_throws_out_the_last_and_it_ends_all_the_same() -> None:
    made = machine(blocks=8, cache=False)
    one, two = submit(made, Request(8, 20), Request(8, 20))
    drain(made)

    assert (one.preempted, two.preempted) == (0, 1)
    assert one.finished < two.finished < inf
    assert two.request.output_tokens == 20
    assert made.blocks.free == 8


def test_a_session_is_not_computed_again() -> None:
    made = machine()
    submit(made, Request(20, 5, session=7))
    drain(made)
    (again,) = submit(made, Request(40, 2, session=7, shared_tokens=24), now=50.0)
    drain(made, 50.0)

    assert again.hit_tokens == 24  # 20 in, 4 of 5 out in the cache: 24 in six whole blocks
    assert again.first == 50.0 + 1.16


@pytest.mark.parametrize(
    ("shared", "hit"),
    [
        pytest.param(0, 0, id="nothing is the same"),
        pytest.param(10, 8, id="whole blocks only"),
        pytest.param(24, 24, id="all that was kept"),
        pytest.param(40, 24, id="no more than was kept"),
    ],
)
def test_how_much_of_a_prompt_is_there(shared: int, hit: int) -> None:
    made = machine()
    submit(made, Request(20, 5, session=7))
    drain(made)
    (again,) = submit(made, Request(41, 2, session=7, shared_tokens=shared))
    drain(made)

    assert again.hit_tokens == hit


def test_the_last_token_of_a_known_prompt_is_computed_all_the_same() -> None:
    made = machine()
    submit(made, Request(20, 5, session=7))
    drain(made)
    (again,) = submit(made, Request(24, 1, session=7, shared_tokens=24))
    drain(made)

    assert again.hit_tokens == 20


def test_a_head_is_shared_by_strangers_and_outlives_them() -> None:
    made = machine()
    submit(made, Request(20, 5, session=1, head=9, head_tokens=12, shared_tokens=12))
    drain(made)
    (other,) = submit(made, Request(30, 5, session=2, head=9, head_tokens=12, shared_tokens=12))
    drain(made)

    assert other.hit_tokens == 12
    assert made.blocks.kept == 3 + 3 + 5  # the head once, then what each has of its own in whole blocks


def test_the_oldest_session_gives_way_from_its_end() -> None:
    made = machine(blocks=12)
    submit(made, Request(16, 1, session=1))
    drain(made)
    submit(made, Request(16, 1, session=2))
    drain(made)
    submit(made, Request(20, 1, session=3))  # five blocks, four are free
    drain(made)
    jobs = submit(made, Request(17, 1, session=1, shared_tokens=16))
    drain(made)

    assert jobs[0].hit_tokens == 12
    assert made.blocks.evicted == 3  # one of the first session's, then two for its return


def test_what_can_never_end_is_refused() -> None:
    made = machine(blocks=4)

    assert made.submit(Request(16, 1), 0.0) is None
    assert made.submit(Request(15, 1), 0.0) is not None
    assert made.gauges.refused == 1


def test_a_full_queue_refuses() -> None:
    made = Machine(Limits(blocks=100, sequences=1, queue=1), clock)
    assert made.submit(Request(1, 1), 0.0) is not None
    assert made.submit(Request(1, 1), 0.0) is None


def test_thoughts_are_not_visible() -> None:
    made = machine()
    one, two = submit(made, Request(10, 9, hidden_tokens=4), Request(10, 3, hidden_tokens=9))
    drain(made)

    assert (one.first, one.visible) == (1.2, 5.2)
    assert two.visible == two.finished  # all of it was thought


def test_a_lower_priority_number_goes_first() -> None:
    made = machine(sequences=1)
    low, high = submit(made, Request(1, 3, priority=1), Request(1, 3))
    drain(made)

    assert high.finished < low.first


def test_a_cancelled_job_gives_its_blocks_back() -> None:
    made = machine(sequences=1, batch=10)
    running, waiting, other = submit(made, Request(30, 9), Request(30, 9), Request(5, 2))
    made.step(0.0, most=1)
    made.cancel(waiting)
    made.cancel(running)
    drain(made, 1.0)

    assert other.finished < inf
    assert waiting.first == running.first == inf
    assert made.blocks.free == made.blocks.total


def test_steps_taken_at_once_are_the_same_as_one_by_one() -> None:
    found = []
    for most in (1, 1 << 30):
        made = machine(blocks=30, sequences=4)
        jobs = submit(made, *(Request(7 + i, 5 + 3 * i, hidden_tokens=i, session=i + 1) for i in range(8)))
        drain(made, most=most)
        found.append([(job.first, job.visible, job.finished, job.preempted) for job in jobs])

    assert found[0] == [pytest.approx(each) for each in found[1]]


REQUESTS = st.lists(
    st.builds(
        Request,
        prompt_tokens=st.integers(1, 60),
        output_tokens=st.integers(1, 30),
        hidden_tokens=st.integers(0, 10),
        session=st.integers(0, 3),
        shared_tokens=st.integers(0, 60),
        head=st.integers(0, 2),
        head_tokens=st.integers(0, 20),
        priority=st.just(0),
        client=st.just(0),
    ).map(lambda r: r._replace(head_tokens=min(r.head_tokens, r.prompt_tokens))),
    min_size=1,
    max_size=25,
)


@given(
    requests=REQUESTS,
    blocks=st.integers(4, 60),
    batch=st.integers(10, 80),
    sequences=st.integers(1, 9),
    most=st.sampled_from([1, 1 << 30]),
)
@settings(max_examples=200, deadline=None)
def test_no_token_and_no_block_is_lost(
    requests: list[Request], blocks: int, batch: int, sequences: int, most: int
) -> None:
    made = machine(blocks=blocks, batch=batch, sequences=sequences)
    jobs = submit(made, *requests)
    steps = drain(made, most=most)

    assert sorted(job.order for step in steps for job in step.finished) == [job.order for job in jobs]
    assert len(jobs) + made.gauges.refused == len(requests)
    assert all(job.made == job.request.output_tokens for job in jobs)
    assert all(job.arrived < job.first <= job.visible <= job.finished for job in jobs)
    computed = sum(job.request.prompt_tokens - 1 for job in jobs) - sum(job.hit_tokens for job in jobs)
    assert made.gauges.prefilled_tokens >= computed - len(jobs) * 60 * made.gauges.preemptions
    assert made.held == 0
    assert made.blocks.free + made.blocks.kept == made.blocks.total


@given(requests=REQUESTS, sequences=st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_nobody_overtakes_an_equal(requests: list[Request], sequences: int) -> None:
    made = machine(blocks=1000, sequences=sequences)
    jobs = submit(made, *requests)
    drain(made)
    firsts = [job.first for job in jobs]

    assert firsts == sorted(firsts)


class Clients:
    """So many clients, each with a request under way."""

    def __init__(self, count: int, rng: Random) -> None:
        self._count = count
        self._rng = rng

    def _request(self) -> Request:
        return Request(self._rng.randint(50, 400), self._rng.randint(10, 100))

    def begin(self) -> Sequence[Arrival]:
        return [Arrival(0.0, self._request()) for _ in range(self._count)]

    def after(self, request: Request, now: float) -> Arrival:
        return Arrival(now, self._request())


def rate(blocks: int) -> float:
    made = Machine(Limits(blocks=blocks, batch_tokens=512, sequences=64), lambda b: 0.01 + b.prefill_tokens * 1e-4)
    done = run([made], Clients(64, Random(3)), least_loaded([made]), requests=600)
    assert all(job.finished <= done.seconds for job in done.jobs)
    return len(done.jobs) / done.seconds


def test_a_larger_cache_never_serves_less() -> None:
    rates = [rate(blocks) for blocks in (100, 200, 400, 800, 1600, 3200)]

    assert all(more >= 0.97 * less for less, more in itertools.pairwise(rates))
    assert rates[-1] > 1.5 * rates[0]


def test_two_engines_serve_twice_as_many() -> None:
    def served(count: int) -> float:
        made = [machine(blocks=5000, sequences=8) for _ in range(count)]
        return run(made, Clients(16 * count, Random(5)), least_loaded(made), requests=200 * count).seconds

    assert served(2) == pytest.approx(served(1), rel=0.1)
