"""What broke the cache, told apart by its causes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.steer.breaks import Turn, Verdict, explain
from stoker.wire.prompt import ENDS, blocks


def turn(
    prompt: bytes, *, replica: str = "a", tokens: int = 0, cached: int = 0, tools: int = 0, system: int = 0
) -> Turn:
    return Turn(
        at=0.0,
        replica=replica,
        blocks=blocks(prompt, salt=b"s"),
        prompt_bytes=len(prompt),
        tools_bytes=tools,
        system_bytes=system,
        prompt_tokens=tokens or len(prompt) // 4,
        cached_tokens=cached,
    )


BASE = bytes(i * 7 % 251 for i in range(40_000))


def test_a_session_that_only_grows() -> None:
    turns = [turn(BASE[:10_000]), turn(BASE[:20_000], cached=2400), turn(BASE, cached=4900)]
    assert [found.verdict for found in explain(turns, ENDS)] == ["First", "Continued", "Continued"]


@pytest.mark.parametrize(("at", "where", "block"), [(100, "tools", 0), (9_000, "system", 8), (15_000, "messages", 14)])
def test_a_change_is_found_where_it_is(at: int, where: str, block: int) -> None:
    changed = BASE[:at] + b"!" + BASE[at + 1 :]
    found = explain([turn(BASE[:20_000], tools=8_000, system=4_000), turn(changed, cached=at // 4)], ENDS)[1]

    assert (found.verdict, found.where, found.block) == (Verdict.CHANGED, where, block)
    assert found.start_bytes <= at < found.end_bytes
    assert found.again_tokens == pytest.approx(5_000 - found.start_bytes / 4, abs=2)
    assert found.advice


def test_another_replica_and_a_cache_that_forgot() -> None:
    first, later = turn(BASE[:20_000]), BASE[:30_000]
    moved = explain([first, turn(later, replica="b", cached=16)], ENDS)[1]
    forgot = explain([first, turn(later, cached=16)], ENDS)[1]
    silent = explain([first, Turn(at=1, replica="a", blocks=blocks(later, salt=b"s"), prompt_bytes=30_000)], ENDS)[1]

    assert (moved.verdict, moved.again_tokens) == (Verdict.MOVED, 5_000 - 16)
    assert (forgot.verdict, forgot.again_tokens) == (Verdict.FORGOTTEN, 5_000 - 16)
    assert silent.verdict is Verdict.UNKNOWN


def test_nothing_is_nothing() -> None:
    assert explain([], ENDS) == []


@given(st.binary(min_size=1, max_size=6000), st.binary(max_size=6000), st.integers(0, 5999))
def test_a_continuation_is_never_a_change_and_a_change_always_is(start: bytes, more: bytes, at: int) -> None:
    continued = explain([turn(start, tokens=10), turn(start + more, tokens=20, cached=10)], ENDS)[1]
    assert continued.verdict is Verdict.CONTINUED

    at %= len(start)
    other = start[:at] + bytes([start[at] ^ 1]) + start[at + 1 :] + more
    changed = explain([turn(start, tokens=10), turn(other, tokens=20, cached=10)], ENDS)[1]
    inside_the_last = at >= (len(start) - 1) // 1024 * 1024
    assert (changed.verdict is Verdict.CHANGED) or inside_the_last
