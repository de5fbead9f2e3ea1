"""What limits allow, in a time that the test sets."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.quota.level import (
    DAY_SECONDS,
    FULL,
    Demand,
    Left,
    Level,
    ended,
    granted,
    left,
    left_of,
    refilled,
    refuse,
    settled,
    share,
    taken,
)
from stoker.facts.routes import Limits

NOON = 20_000 * DAY_SECONDS + DAY_SECONDS / 2
BY_MINUTE = Limits(requests_per_minute=6, tokens_per_minute=600)


def demand(limits: Limits) -> Demand:
    return Demand("a", limits, "caller a")


def at(requests: float = FULL, tokens: float = FULL, spent: int = 0) -> Level:
    return Level(requests, tokens, NOON, int(NOON // DAY_SECONDS), spent)


@pytest.mark.parametrize(
    ("limits", "level", "tokens", "running", "want"),
    [
        pytest.param(Limits(), at(0, -9, 10**9), 10**9, 10**9, None, id="no limit"),
        pytest.param(BY_MINUTE, at(6, 600), 600, 0, None, id="all that is there"),
        pytest.param(BY_MINUTE, at(0.5, 600), 1, 0, ("requests_per_minute", 6, 5.0), id="half a request"),
        pytest.param(BY_MINUTE, at(6, 100), 200, 0, ("tokens_per_minute", 600, 10.0), id="too few tokens"),
        pytest.param(BY_MINUTE, at(6, -300), 0, 0, ("tokens_per_minute", 600, 30.1), id="a debt waits"),
        pytest.param(BY_MINUTE, at(6, 600), 10**6, 0, None, id="more than a minute's worth needs a full level"),
        pytest.param(BY_MINUTE, at(6, 590), 10**6, 0, ("tokens_per_minute", 600, 1.0), id="which this one is not"),
        pytest.param(BY_MINUTE, at(0, 0), 600, 0, ("tokens_per_minute", 600, 60.0), id="the longest wait is told"),
        pytest.param(
            Limits(tokens_per_day=1000),
            at(spent=900),
            101,
            0,
            ("tokens_per_day", 1000, 43200.0),
            id="past the day",
        ),
        pytest.param(Limits(tokens_per_day=1000), at(spent=900), 100, 0, None, id="the rest of the day"),
        pytest.param(Limits(tokens_per_day=1000), at(), 5000, 0, None, id="a whole day for one"),
        pytest.param(Limits(concurrent=2), at(), 0, 1, None, id="the second at once"),
        pytest.param(Limits(concurrent=2), at(), 0, 2, ("concurrent", 2, 1.0), id="the third at once"),
    ],
)
def test_refusals(limits: Limits, level: Level, tokens: int, running: int, want: tuple[str, int, float] | None) -> None:
    refusal = refuse(demand(limits), level, tokens=tokens, running=running, now=NOON)

    assert (refusal and (refusal.limit, refusal.allowed, pytest.approx(refusal.retry_after))) == want


LIMITS = st.builds(
    Limits,
    requests_per_minute=st.sampled_from([0, 1, 7, 600]),
    tokens_per_minute=st.sampled_from([0, 50, 5000]),
    tokens_per_day=st.sampled_from([0, 400, 100_000]),
)


@given(LIMITS, st.floats(-700, 700), st.floats(-6000, 6000), st.integers(0, 200_000), st.integers(0, 9000))
def test_whoever_waits_as_told_gets_in(limits: Limits, requests: float, tokens: float, spent: int, need: int) -> None:
    one = demand(limits)
    level = refilled(at(requests, tokens, spent), limits, NOON)
    refusal = refuse(one, level, tokens=need, running=0, now=NOON)
    if refusal is not None:
        later = NOON + refusal.retry_after + 0.001
        assert refuse(one, refilled(level, limits, later), tokens=need, running=0, now=later) is None


@dataclass
class Spent:
    at: float = NOON
    level: Level = field(default_factory=Level)
    tokens: float = 0
    requests: int = 0


@given(
    st.lists(st.tuples(st.floats(0, 40), st.integers(0, 400), st.integers(0, 400)), max_size=60),
    st.integers(1, 30),
    st.integers(1, 900),
)
def test_over_any_time_no_more_is_used_than_the_rate_and_one_full_level(
    steps: list[tuple[float, int, int]], requests: int, tokens: int
) -> None:
    """The error of one estimate may be used before, never more: settling takes it off what comes next."""
    limits, seen, worst = Limits(requests_per_minute=requests, tokens_per_minute=tokens), Spent(), 0
    for wait, guess, used in steps:
        seen.at += wait
        level = refilled(seen.level, limits, seen.at)
        if refuse(demand(limits), level, tokens=guess, running=0, now=seen.at) is None:
            level = settled(taken(level, guess), guess, used, request=True)
            seen.tokens += used
            seen.requests += 1
            worst = max(worst, used, guess)
        seen.level = level
        minutes = (seen.at - NOON) / 60
        assert seen.requests <= requests * (1 + minutes) + 1e-6
        assert seen.tokens <= tokens * (1 + minutes) + worst + 1e-6


def test_what_was_refused_later_gives_everything_back() -> None:
    level = refilled(Level(), BY_MINUTE, NOON)

    assert settled(taken(level, 90), 90, 0, request=False) == level
    assert settled(taken(level, 90), 90, 0, request=True).requests == level.requests - 1


def test_a_new_day_and_a_new_limit_begin_full() -> None:
    yesterday = Level(3.0, -50.0, NOON - DAY_SECONDS, int(NOON // DAY_SECONDS) - 1, 900)
    assert refilled(yesterday, Limits(tokens_per_day=10), NOON).spent == 0
    unlimited = refilled(Level(), Limits(tokens_per_day=10), NOON)
    assert refilled(unlimited, BY_MINUTE, NOON).requests == 6


def test_a_share_is_never_nothing() -> None:
    assert share(Limits(requests_per_minute=1, tokens_per_minute=1000, concurrent=3), 0.25) == Limits(
        requests_per_minute=1, tokens_per_minute=250, concurrent=1
    )


def test_the_tightest_limit_is_shown() -> None:
    wide, narrow = Limits(requests_per_minute=100, tokens_per_minute=1000), Limits(requests_per_minute=10)
    day = Limits(tokens_per_day=5000)
    demands = (demand(wide), demand(narrow), demand(day))
    seen = left(demands, (at(90, 500), at(2, FULL), at(spent=4900)), NOON)

    assert seen == Left(
        requests_limit=10,
        requests=2,
        requests_reset=48.0,
        tokens_limit=5000,
        tokens=100,
        tokens_reset=DAY_SECONDS / 2,
    )
    assert left((), (), NOON) == Left()


WITH_CONCURRENCY = st.builds(
    Limits,
    requests_per_minute=st.sampled_from([0, 1, 7, 600]),
    tokens_per_minute=st.sampled_from([0, 50, 5000]),
    tokens_per_day=st.sampled_from([0, 400, 100_000]),
    concurrent=st.sampled_from([0, 1, 3]),
)
LEVELS = st.builds(
    Level,
    st.one_of(st.just(FULL), st.floats(-700, 700)),
    st.one_of(st.just(FULL), st.floats(-6000, 6000)),
    st.floats(NOON - 2 * DAY_SECONDS, NOON + 100),
    st.sampled_from([int(NOON // DAY_SECONDS), int(NOON // DAY_SECONDS) - 1]),
    st.integers(0, 200_000),
)


@given(WITH_CONCURRENCY, LEVELS, st.integers(0, 9000), st.integers(0, 4))
def test_the_short_way_in_leads_where_the_long_way_leads(
    limits: Limits, level: Level, tokens: int, running: int
) -> None:
    now = refilled(level, limits, NOON)
    refusal = refuse(demand(limits), now, tokens=tokens, running=running, now=NOON)
    found = granted(level, limits, tokens=tokens, running=running, now=NOON)

    assert found == (None if refusal is not None else taken(now, tokens))


@given(WITH_CONCURRENCY, LEVELS, st.integers(0, 9000), st.integers(0, 9000), st.booleans())
def test_so_does_the_short_way_out(limits: Limits, level: Level, reserved: int, used: int, request: bool) -> None:  # noqa: FBT001 -- given by name
    want = settled(refilled(level, limits, NOON), reserved, used, request=request)

    assert ended(level, limits, more=used - reserved, request=request, now=NOON) == want


@given(WITH_CONCURRENCY, LEVELS)
def test_what_is_left_of_one_scope_is_what_is_left(limits: Limits, level: Level) -> None:
    assert left_of(limits, level, NOON) == left([demand(limits)], [level], NOON)
