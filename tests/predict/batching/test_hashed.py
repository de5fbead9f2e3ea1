"""The cache by hashes: what a prompt finds of others, what gives way, and that no block is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.predict.batching.hashed import HashedBlocks
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Batch, Job, Limits, Request
from stoker.rehearse.batch.prefix import hashes

SIZE = 4


def machine(*, blocks: int = 100, batch: int = 100, sequences: int = 8, cache: bool = True) -> Machine:
    limits = Limits(blocks=blocks, block_tokens=SIZE, batch_tokens=batch, sequences=sequences, prefix_cache=cache)
    return Machine(limits, lambda batch: 1.0 + batch.prefill_tokens / 100, HashedBlocks(limits))


def request(prompt: str, answer: str = "x") -> Request:
    return Request(len(prompt), len(answer), hashes=hashes(prompt + answer, SIZE))


def drain(made: Machine) -> None:
    now = 0.0
    while (step := made.step(now, most=1)) is not None:
        now += step.seconds
        assert 0 <= made.blocks.available <= made.blocks.total
    assert made.blocks.free + made.blocks.kept == made.blocks.total  # nobody runs: nothing is held


def hits(made: Machine, *requests: Request, at_once: bool = False) -> list[int]:
    jobs: list[Job | None] = []
    for each in requests:
        jobs.append(made.submit(each, 0.0))
        if not at_once:
            drain(made)
    drain(made)
    return [job.hit_tokens for job in jobs if job is not None]


@pytest.mark.parametrize(
    ("prompts", "found"),
    [
        pytest.param([("aaaabbbb", "x"), ("aaaabbbb", "x")], [0, 4], id="the last token is computed again"),
        pytest.param([("aaaabbbbc", "x"), ("aaaabbbbc", "x")], [0, 8], id="whole blocks are found"),
        pytest.param([("aaaabbbbcc", "ddee"), ("aaaabbbbccddeef", "x")], [0, 12], id="also of an answer"),
        pytest.param([("aaaabbbbcccc", "x"), ("aaaaBBBBcccc", "x")], [0, 4], id="up to the first difference"),
        pytest.param([("aaaabbbbc", "x"), ("aaaaBBBBc", "x"), ("aaaabbbbc", "x")], [0, 4, 8], id="both ends stay"),
        pytest.param([("zaaaabbbb", "x"), ("aaaabbbbc", "x")], [0, 0], id="from the beginning or not at all"),
    ],
)
def test_what_is_found(prompts: list[tuple[str, str]], found: list[int]) -> None:
    assert hits(machine(), *(request(*each) for each in prompts)) == found


def test_a_prompt_finds_what_the_same_step_computes() -> None:
    assert hits(machine(), request("aaaabbbbc"), request("aaaabbbbd"), at_once=True) == [0, 8]


def test_only_whole_pieces_of_a_prompt_that_is_still_read_are_found() -> None:
    made = machine(batch=6)
    first = made.submit(request("aaaabbbbccccd"), 0.0)
    made.step(0.0, most=1)  # six tokens: one whole block
    second = made.submit(request("aaaabbbbccccd"), 1.0)
    assert first is not None
    assert second is not None
    drain(made)
    assert second.hit_tokens == 12  # it began only when the first had been read
    assert first.hit_tokens == 0


def test_what_was_not_used_for_longest_gives_way_from_its_end() -> None:
    made = machine(blocks=6)
    old, young, large = request("aaaabbbbc"), request("ddddeeeef"), request("gggghhhhi", "xxxxxx")
    assert hits(made, old, young, large) == [0, 0, 0]  # two blocks each stay; the large one needs four
    assert made.blocks.evicted == 2
    assert hits(made, young) == [8]
    assert hits(made, old) == [0]


def test_who_was_thrown_out_finds_what_he_had() -> None:
    made = machine(blocks=8, sequences=2)
    first = made.submit(request("aaaabbbbcccc", "x" * 16), 0.0)
    second = made.submit(request("ddddeeeeffff", "y" * 16), 0.0)
    drain(made)
    assert first is not None
    assert second is not None
    assert second.preempted
    assert second.made == 16
    assert made.gauges.prefilled_tokens < 24 + 12 + 16 - 4  # not all was read again


def test_without_the_cache_nothing_is_found() -> None:
    assert hits(machine(cache=False), request("aaaabbbbc"), request("aaaabbbbc")) == [0, 0]


PROMPTS = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=30), st.text("ab", min_size=1, max_size=12)), min_size=1, max_size=10
)


@given(prompts=PROMPTS)
@settings(max_examples=150, deadline=None)
def test_one_after_the_other_finds_the_longest_beginning_that_anybody_sent(prompts: list[tuple[str, str]]) -> None:
    sent: list[str] = []
    wanted = []
    for prompt, answer in prompts:
        whole = (len(prompt) - 1) // SIZE
        wanted.append(
            SIZE * max((n for n in range(whole + 1) if any(s.startswith(prompt[: n * SIZE]) for s in sent)), default=0)
            if sent
            else 0
        )
        sent.append((prompt + answer)[:-1])  # the last token of an answer is said, and never read
    assert hits(machine(blocks=10_000), *(request(*each) for each in prompts)) == wanted


@given(prompts=PROMPTS, blocks=st.integers(4, 40), batch=st.integers(5, 40), sequences=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_no_token_and_no_block_is_lost(prompts: list[tuple[str, str]], blocks: int, batch: int, sequences: int) -> None:
    made = machine(blocks=blocks, batch=batch, sequences=sequences)
    jobs = [made.submit(request(*each), 0.0) for each in prompts]
    drain(made)
    taken = [job for job in jobs if job is not None]
    assert len(taken) + made.gauges.refused == len(prompts)
    assert all(job.made == job.request.output_tokens for job in taken)


@given(prompts=PROMPTS, gone=st.integers(0, 9), after=st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_a_client_that_goes_leaves_nothing_held(prompts: list[tuple[str, str]], gone: int, after: int) -> None:
    made = machine(blocks=20, batch=10, sequences=3)
    jobs = [job for each in prompts if (job := made.submit(request(*each), 0.0)) is not None]
    for _ in range(after):
        made.step(0.0, most=1)
    left = [job for job in jobs if job.finished > 1e300]
    if left:
        made.cancel(left[gone % len(left)])
    drain(made)


def test_step_times_do_not_hang_on_the_kind_of_cache() -> None:
    limits = Limits(blocks=100, block_tokens=SIZE, batch_tokens=20)
    for made in (Machine(limits, _clock), Machine(limits, _clock, HashedBlocks(limits))):
        job = made.submit(Request(50, 5), 0.0)
        drain(made)
        assert job is not None
        assert (job.began, job.first, job.finished) == (0.0, 3.5, 7.5)


def _clock(batch: Batch) -> float:
    return 1.0 + batch.prefill_tokens / 100
