"""What is spliced into a body, and that nothing else changes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.wire import prompt
from stoker.wire.request import caps, prepare, read
from stoker.wire.splice import splice


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        pytest.param({}, {"max_tokens": 100}, id="none: added"),
        pytest.param({"max_tokens": 50}, {}, id="low enough"),
        pytest.param({"max_tokens": 500}, {"max_tokens": 100}, id="too high"),
        pytest.param({"max_tokens": None}, {"max_tokens": 100}, id="null means no limit"),
        pytest.param({"max_tokens": -1}, {"max_tokens": 100}, id="so does a negative one"),
        pytest.param({"max_completion_tokens": 500}, {"max_completion_tokens": 100}, id="the newer name"),
        pytest.param({"max_tokens": 5, "max_completion_tokens": 500}, {"max_completion_tokens": 100}, id="both"),
        pytest.param({"max_tokens": 5, "n_predict": -1}, {"n_predict": 100}, id="the engine's own name"),
        pytest.param({"max_tokens": 0}, {}, id="nothing is asked for"),
    ],
)
def test_caps(given_: dict[str, int | None], want: dict[str, int]) -> None:
    assert caps(read(msgspec.json.encode({"model": "m", **given_})), 100) == want


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        ({}, 1),
        ({"n": None}, 1),
        ({"n": 4}, 4),
        ({"n": 2, "best_of": 5}, 5),
        ({"n": 0}, 1),
        ({"n": "4"}, 1),  # the engine will say what is wrong with it
        ({"prompt": "one"}, 1),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": []}, 1),
        ({"prompt": ["one", "two", "three"]}, 3),
        ({"prompt": [[1, 2], [3]], "n": 2}, 4),
    ],
)
def test_answers(given_: dict[str, object], want: int) -> None:
    assert read(msgspec.json.encode({"model": "m", **given_})).answers == want


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(b'{"model":"m"}', b'{"max_tokens":9,"model":"m"}', id="inserted in front"),
        pytest.param(b'{ "max_tokens" :  99 ,"model":"m"}', b'{ "max_tokens" :  9 ,"model":"m"}', id="spaces stay"),
        pytest.param(
            b'{"model":"m","tools":[{"max_tokens":99}],"max_tokens":99}',
            b'{"model":"m","tools":[{"max_tokens":99}],"max_tokens":9}',
            id="not the one inside",
        ),
        pytest.param(
            b'{"model":"m","x":{"max_tokens":1},"max\\u005ftokens":99}',
            b'{"model":"m","x":{"max_tokens":1},"max\\u005ftokens":9}',
            id="not even when the key hides",
        ),
        pytest.param(
            b'{"max_tokens":99,"max_tokens":98,"model":"m"}', b'{"max_tokens":9,"max_tokens":9,"model":"m"}', id="twice"
        ),
        pytest.param(
            b'{"model":"\\"max_tokens\\":1","max_tokens":99}',
            b'{"model":"\\"max_tokens\\":1","max_tokens":9}',
            id="in a text",
        ),
    ],
)
def test_cap_is_written_in_place(body: bytes, want: bytes) -> None:
    assert prepare(body, read(body), cap=9, model="", stream=False).body == want


def test_stream_and_usage_and_model() -> None:
    body = b'{"model":"m","stream":false,"stream_options":{"a":[1,{"b":2}]},"temperature":0.70000000000000001,"q":1}'
    change = prepare(body, read(body), cap=0, model="real", stream=True)

    assert change.body == (
        b'{"model":"real","stream":true,"stream_options":{"a":[1,{"b":2}],"include_usage":true},'
        b'"temperature":0.70000000000000001,"q":1}'
    )
    assert change.splices == ("model", "stream", "stream_options")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["max_tokens", "x", 'q"{']), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "stream", "max_tokens", "b}"]), VALUES, max_size=4))
def test_splice_changes_one_member_and_nothing_else(members: dict[str, object]) -> None:
    body = msgspec.json.encode({"model": "m", **members})
    there = {"max_tokens": b"7"} if "max_tokens" in members else {}
    absent = {} if there else {"max_tokens": b"7"}

    assert msgspec.json.decode(splice(body, there, absent)) == {"model": "m", **members, "max_tokens": 7}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model":1}', b'{"messages":[]}', b"\xff", b'{"model":"m","stream":"yes"}']
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        read(body)


def test_prompts_share_as_many_hashes_as_blocks() -> None:
    base = bytes(range(256)) * 20
    one = prompt.blocks(base + b"a" * 3000, salt=b"s")
    two = prompt.blocks(base + b"b" * 3000, salt=b"s")
    shared = [x == y for x, y in zip(one, two, strict=True)]

    assert shared == [True] * 5 + [False] * 3
    assert prompt.blocks(base, salt=b"t")[0] != one[0]
    assert len(prompt.blocks(b"x" * 10_000_000, salt=b"s")) == prompt.MAX_BLOCKS
    assert prompt.blocks(b"", salt=b"s") == ()
    assert prompt.blocks(b"x" * 1024, salt=b"s") == prompt.blocks(b"x" * 1024 + b"y", salt=b"s")[:1]


def test_sessions_and_turns() -> None:
    assert prompt.given_session({b"x-session-id": b"a"}, None) == prompt.given_session({b"session-id": b"a"}, "z")
    assert prompt.given_session({}, "a") == b"a"
    assert prompt.given_session({}, None) == b""
    assert prompt.session(b"a", salt=b"s") not in ("", prompt.session(b"a", salt=b"t"))
    assert prompt.session(b"", salt=b"s") == ""
    assert (
        prompt.turn(b'[{"role":"user"},{"role": "assistant","content":"\\"role\\":\\"assistant\\""},{"role":"user"}]')
        == 2
    )
    assert prompt.turn(b"") == 0


def test_a_body_nested_without_end_is_a_clear_refusal() -> None:
    with pytest.raises(Invalid, match="nested too deeply"):
        read(b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
