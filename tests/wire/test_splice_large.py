"""A large member is stepped over, and nothing can hide behind it."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire import request
from stoker.wire.splice import splice

LARGE = json.dumps([{"role": "user", "content": "word " * 20_000}]).encode()


@given(st.permutations(["model", "messages", "max_tokens", "x"]), st.integers(0, 2))
def test_members_around_a_large_one_are_changed(names: list[str], spaces: int) -> None:
    values = {"model": b'"m"', "messages": LARGE, "max_tokens": b"99999", "x": b'{"max_tokens":1}'}
    gap = b" " * spaces
    body = b"{" + b",".join(b'"%b":%b%b' % (name.encode(), gap, values[name]) for name in names) + b"}"

    out = splice(body, {"max_tokens": b"7", "model": b'"up"'}, {"stream": b"true"}, large=LARGE)

    read = msgspec.json.decode(out)
    assert read == {**msgspec.json.decode(body), "max_tokens": 7, "model": "up", "stream": True}
    assert out.count(LARGE) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":%b,"max_tokens":99999,"model":"m","messages":%b}' % (LARGE, LARGE),
        b'{"a":{"b":%b,"c":"max_tokens"},"max_tokens":99999,"model":"m","messages":%b}' % (LARGE, LARGE),
        b'{"messages":%b,"max_tokens":99999,"model":"m","messages":%b}' % (LARGE[:-3] + b"x" + LARGE[-3:], LARGE),
        b'{"a":%b,"max_tokens":99999,"b":[1,2],"model":"m","messages":%b}' % (LARGE[:300] + b'"}]', LARGE),
        b'{"a":"\\u0001","max_tokens":99999,"model":"m","messages":%b}' % LARGE,
        b'{"max_t\\u006fkens":99999,"model":"m","messages":%b}' % LARGE,
    ],
)
def test_no_look_alike_hides_the_output_limit(body: bytes) -> None:
    asked = request.read(body)
    change = request.prepare(body, asked, cap=10, model="", stream=False)

    assert msgspec.json.decode(change.body)["max_tokens"] == 10


def test_what_is_only_nearly_the_large_member_is_read_in_full() -> None:
    body = b'{"model":"m","max_tokens":5,"messages":%b}' % LARGE
    out = splice(body, {"max_tokens": b"3"}, {}, large=LARGE[:-4] + b"y" + LARGE[-3:])

    assert msgspec.json.decode(out)["max_tokens"] == 3
