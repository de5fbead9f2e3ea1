"""Sessions: what was said before stays as it was, to the byte."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.json import Json, JsonObject
from stoker.bench.load.answer import text_of
from stoker.bench.load.render import render
from stoker.bench.load.talk import Ask, Costs, Style, Talk
from stoker.bench.load.target import PATHS, Target, base_url
from stoker.bench.load.words import Book

BOOK = Book()
DIALECTS = tuple(PATHS)


def talk(dialect: str = "chat", *, salt: str = "s", tools: bool = False, last: bool = False, session: int = 1) -> Talk:
    target = Target(url="http://x", model="m", dialect=dialect)
    style = Style(render=render(target), book=BOOK, costs=Costs(), salt=salt, tools=tools, head_last=last)
    return Talk(style, session)


def ask(turn: int, prompt: int, shared: int, *, head: int = 0, tool: bool = False, output: int = 10) -> Ask:
    return Ask(1, turn, prompt_tokens=prompt, output_tokens=output, shared_tokens=shared, head_tokens=head, tool=tool)


def texts(value: Json) -> list[str]:
    """Every text of a conversation, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    if not isinstance(value, dict):
        return []
    return [text for name in ("system", "instructions", "messages", "input", "content", "text", "output")
            for text in texts(value.get(name))]  # fmt: skip


def words(body: bytes) -> list[str]:
    return " ".join(texts(json.loads(body))).split()


def common(first: list[str], second: list[str]) -> int:
    apart = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(apart, min(len(first), len(second)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_growing_session_keeps_its_bytes(dialect: str) -> None:
    session = talk(dialect, tools=True)
    first = session.body(ask(1, 500, 100, head=100))
    second = session.body(ask(2, 700, 510, head=100, tool=True))
    third = session.body(ask(3, 900, 710, head=100))

    at = first.rindex(b"}")  # behind it come the limits
    begin = first[: first.rindex(b"]", 0, at)] if dialect != "chat" else first[: first.index(b"]")]
    assert second.startswith(begin)
    assert [len(words(each)) for each in (first, second, third)] == [500, 700, 900]
    assert common(words(first), words(second)) == 500
    assert common(words(second), words(third)) == 700


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_tool_gave_back_is_a_result_of_a_call(dialect: str) -> None:
    session = talk(dialect, tools=True)
    session.body(ask(1, 50, 0))
    body: JsonObject = json.loads(session.body(ask(2, 120, 60, tool=True)))

    marks = {"chat": '"role": "tool"', "messages": '"tool_result"', "responses": '"function_call_output"'}
    assert marks[dialect] in json.dumps(body)
    assert body["tools"]
    assert body["stream"] is True


def test_a_broken_prefix_shares_the_head_alone() -> None:
    session = talk()
    first = words(session.body(ask(1, 500, 100, head=100)))
    second = words(session.body(ask(2, 600, 100, head=100)))

    assert common(first, second) == 100


def test_a_part_of_what_was_said_can_be_shared_and_roles_go_on_taking_turns() -> None:
    session = talk()
    session.body(ask(1, 400, 0))
    second = session.body(ask(2, 1000, 410))
    third = session.body(ask(3, 1100, 700))
    roles = [m["role"] for m in json.loads(third)["messages"]]

    assert common(words(second), words(third)) == 700
    assert len(words(third)) == 1100
    assert all(a != b for a, b in pairwise(roles))


def test_two_runs_share_nothing_and_two_sessions_their_head() -> None:
    one = words(talk(session=1).body(ask(1, 300, 0, head=100)))
    two = words(talk(session=2).body(ask(1, 300, 0, head=100)))
    other = words(talk(salt="t").body(ask(1, 300, 0, head=100)))

    assert common(one, two) == 100
    assert common(one, other) < 3


def test_the_same_salt_gives_the_same_bytes() -> None:
    assert talk().body(ask(1, 3000, 0, head=500)) == talk().body(ask(1, 3000, 0, head=500))


def test_the_shared_part_can_come_last() -> None:
    one = words(talk(last=True, session=1).body(ask(1, 300, 0, head=100)))
    two = words(talk(last=True, session=2).body(ask(1, 300, 0, head=100)))

    assert common(one, two) < 3
    assert one[-100:] == two[-100:]


def test_the_models_own_answer_is_put_back() -> None:
    session = talk()
    session.body(ask(1, 100, 0))
    session.heard(1, b'forty two \\"quoted\\"', 4)
    body = json.loads(session.body(ask(2, 150, 110)))

    assert body["messages"][1] == {"role": "assistant", "content": 'forty two "quoted"'}


def test_an_answer_that_comes_too_late_is_not_put_back() -> None:
    session = talk()
    session.body(ask(1, 100, 0))
    session.body(ask(2, 150, 110))
    session.heard(1, b"late", 1)

    assert b"late" not in session.body(ask(3, 300, 160))


@given(st.text(min_size=1, max_size=12), st.integers(1, 300), st.integers(1, 300))
def test_a_shorter_text_begins_a_longer_one(key: str, one: int, two: int) -> None:
    short, long = sorted((one, two))

    assert BOOK.text(key, long).startswith(BOOK.text(key, short))
    assert len(BOOK.text(key, long).split()) == long


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 400), st.booleans()), max_size=8),
    st.sampled_from(DIALECTS),
)
def test_any_script_gives_bodies_that_can_be_read(turns: list[tuple[int, int, int, bool]], dialect: str) -> None:
    session = talk(dialect, tools=True)
    for number, (prompt, shared, output, tool) in enumerate(turns):
        found = json.loads(session.body(ask(number, prompt, min(shared, prompt), tool=tool, output=output)))
        assert found["model"] == "m"


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        pytest.param(b'data: {"choices":[{"delta":{"content":"a\\n"}}]}\n\ndata: [DONE]\n\n', b"a\\n", id="chat"),
        pytest.param(
            b'event: x\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"b"}}\n\n',
            b"b",
            id="messages",
        ),
        pytest.param(b'event: x\ndata: {"type":"response.output_text.delta","delta":"c"}\n\n', b"c", id="responses"),
        pytest.param(b'data: {"choices":[{"delta":{"reasoning_content":"h"}}]}\n\n', b"", id="thoughts are left out"),
        pytest.param(b"data: nonsense\n\n", b"", id="what cannot be read"),
    ],
)
def test_what_a_model_said(stream: bytes, text: bytes) -> None:
    assert text_of(stream) == text


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_a_url_is_cut_down_to_its_beginning(end: str) -> None:
    assert base_url(f"http://h:1/below{end}") == "http://h:1/below"
