"""The members of a large request, found piece by piece, are those that are found in one go."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.wire.ask import outline
from stoker.wire.ask.outline import Outline
from stoker.wire.request import Asked, read

LONG = 'wörter \\ " { [ ] } , : \n ' * 8000
MEMBERS = ("messages", "prompt", "input", "tools", "instructions", "system", "metadata")
TEXTS = st.one_of(st.text(max_size=30), st.sampled_from(["LONG", '\\"', "\\\\", "}", '"']))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda some: st.one_of(st.lists(some, max_size=3), st.dictionaries(TEXTS, some, max_size=3)),
    max_leaves=8,
)


def found(body: bytes) -> Asked | None:
    seen = Outline(body)
    for _ in range(1000):
        if seen.more():
            return seen.asked(read)
    raise AssertionError("it does not come to an end")


def facts(asked: Asked) -> dict[str, object]:
    given = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return {name: bytes(value) if isinstance(value, msgspec.Raw) else value for name, value in given.items()}


@given(
    st.lists(st.tuples(st.one_of(st.sampled_from(MEMBERS), st.text(max_size=5)), VALUES), max_size=5),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_what_is_found_piece_by_piece_is_what_is_there(
    members: list[tuple[str, object]],
    indent: int | str | None,
    ascii_: bool,  # noqa: FBT001 -- given by name
) -> None:
    parts = [("model", "m"), *members, ("max_tokens", 7)]
    text = ",".join(
        f"{json.dumps(key, ensure_ascii=ascii_)} : {json.dumps(value, indent=indent, ensure_ascii=ascii_)}"
        for key, value in parts
        if key not in ("model", "max_tokens") or (key, value) in (("model", "m"), ("max_tokens", 7))
    )
    text = text.replace('"LONG"', json.dumps(LONG, ensure_ascii=ascii_))  # here, so that a report stays short
    body = f" {{ {text} }}\n".encode("utf-8", "surrogatepass")
    try:
        want = facts(read(body))
    except Invalid:
        with pytest.raises(Invalid):
            found(body)
        return
    got = found(body)
    assert got is not None
    assert facts(got) == want


@given(st.data())
def test_whatever_comes_ends_and_never_says_more_than_the_bytes(data: st.DataObject) -> None:
    body = bytearray(json.dumps({"model": "m", "messages": [LONG, {"a": [1, 2]}], "n": 2}).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from([b"", b'"', b"\\", b"{", b"]", b","]))
    seen = Outline(body)
    for _ in range(1000):
        if seen.more():
            break
    else:
        raise AssertionError("it does not come to an end")
    assert all(0 < start <= end <= len(body) for _, start, end in seen.spans)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"{",
        b'{"a"',
        b'{"a":',
        b'{"a":"',
        b'{"a":"\\"',
        b'{"a":1,}',
        b'{"a":1}x',
        b'{"a":[1}',
        b"{}",
        b'{"a":}',
    ],
)
def test_what_is_no_plain_object_is_left_to_the_parser(body: bytes) -> None:
    assert found(body) is None


def test_of_a_member_that_is_there_twice_the_last_one_counts() -> None:
    large = json.dumps(LONG)
    twice = f'{{"model":"m","messages":{large},"messages":[1]}}'.encode()
    other = f'{{"model":"m","messages":[1],"mess\\u0061ges":{large}}}'.encode()
    for body in (twice, other):
        got = found(body)
        assert got is not None
        assert facts(got) == facts(read(body))


def test_a_turn_looks_at_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline, "_STEPS", 10)
    seen = Outline(json.dumps({"model": "m", "messages": ["a"] * 100}).encode())
    turns = 1
    while not seen.more():
        turns += 1
    assert turns > 10
    assert seen.asked(read) is not None
