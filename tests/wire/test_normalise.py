"""What changes in a prompt although nothing was changed, and what of it a routing key sees."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire import normalise, prompt


@pytest.mark.parametrize(
    ("before", "after", "rules"),
    [
        (b'"x-anthropic-billing-header: cc_version=2.1.332.0b8; cc_entrypoint=cli;"', b'""', ("marker",)),
        (b'"x-anthropic-billing-header: v=1;\\nYou are"', b'"You are"', ("marker",)),
        (b"on 2026-11-30T12:00:00.123Z now", b"on <date> now", ("date",)),
        (b"\\n2026-11-30\\n", b"\\n<date>\\n", ("date",)),
        (b"It is Monday, November 30, 2026 at 10:33 PM.", b"It is <date>.", ("date",)),
        (b"30 Nov 2026", b"<date>", ("date",)),
        (b"at 12:44:11.233", b"at <date>", ("date",)),
        (b"550e8400-e29b-41d4-a716-446655440000", b"<id>", ("id",)),
        (b"req_011CSHoEeqs5C and toolu_01A2b3C4d5", b"<id> and <id>", ("id",)),
        (b"commit 4290139deadbeef4290139", b"commit <id>", ("id",)),
        (b"127.0.0.1:8080 16:9 v1.2.3 call_function session_management May 5", None, ()),
        (b"deadbeefdeadbeefdead 1234567890123456", None, ()),  # a word, and a number
    ],
)
def test_volatile_words(before: bytes, after: bytes | None, rules: tuple[str, ...]) -> None:
    assert normalise.text(before) == (before if after is None else after, rules)


def test_only_the_rules_asked_for() -> None:
    assert normalise.text(b"2026-11-30 req_011CSHoEeqs5C", ("id",)) == (b"2026-11-30 <id>", ("id",))


TOOLS = [
    {"type": "function", "function": {"name": "write", "parameters": {}}},
    {"name": "bash", "input_schema": {"type": "object"}},
    {"type": "web_search"},
]


@given(st.randoms(use_true_random=False))
def test_the_order_of_tools_and_of_keys_does_not_matter(rng: random.Random) -> None:
    mixed = [dict(rng.sample(list(tool.items()), len(tool))) for tool in TOOLS]
    rng.shuffle(mixed)
    want, _ = normalise.tools(json.dumps(TOOLS).encode())

    got, hit = normalise.tools(json.dumps(mixed).encode())

    assert got == want
    assert set(hit) <= {"tools", "keys"}
    assert sorted(map(json.dumps, json.loads(got))) == sorted(json.dumps(tool, sort_keys=True) for tool in TOOLS)


@pytest.mark.parametrize("odd", [b"", b"null", b"[1,", b'{"a":1}', b"[1,2]"])
def test_what_is_no_list_of_tools_stays(odd: bytes) -> None:
    assert normalise.tools(odd)[0] == odd


def test_keys_are_ordered_and_a_cut_text_is_left() -> None:
    assert normalise.keys(b'[{"b":1,"a":{"d":1,"c":2}}]') == (b'[{"a":{"c":2,"d":1},"b":1}]', ("keys",))
    assert normalise.keys(b'[{"b":1,"a"') == (b'[{"b":1,"a"', ())


def conversation(turns: int, *, date: str = "2026-11-30", ident: str = "550e8400-e29b-41d4-a716-446655440000") -> bytes:
    said: list[dict[str, str]] = [{"role": "system", "content": f"You help.\nDate: {date} request {ident}"}]
    said.append({"role": "user", "content": "List the files of /tmp"})
    for turn in range(turns):
        said += [{"role": "assistant", "content": f"answer {turn}"}, {"role": "user", "content": f"more {turn}"}]
    return json.dumps(said).encode()


def test_every_turn_of_a_conversation_has_one_key() -> None:
    keys = {prompt.head(conversation(turns))[0] for turns in range(5)}
    later = prompt.head(conversation(3, date="2026-12-01", ident="123e4567-e89b-12d3-a456-426614174000"))[0]

    assert keys == {later}


def test_another_question_has_another_key() -> None:
    assert prompt.head(b'[{"role":"user","content":"one"}]') != prompt.head(b'[{"role":"user","content":"two"}]')
    assert prompt.head(b"[]", system=b'"a"') != prompt.head(b"[]", system=b'"q"')


def test_rules_are_named() -> None:
    first, second = json.dumps(TOOLS).encode(), json.dumps(TOOLS[::-1]).encode()
    assert prompt.head(b"[]", tools=first)[0] == prompt.head(b"[]", tools=second)[0]
    assert prompt.head(b'[{"content":"Nov 30, 2026"}]')[1] == ("date",)


def test_marks_for_a_cache_are_no_part_of_the_prompt() -> None:
    marked = b'[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]'
    assert prompt.plain(marked) == b'[{"type":"text","text":"a"}]'
    assert prompt.plain(b"[1]") == b"[1]"


def test_blocks_reach_far_and_share_what_is_shared() -> None:
    base = b"x" * 300_000
    one, two = prompt.blocks(base + b"1" * 50_000, salt=b"s"), prompt.blocks(base + b"2" * 50_000, salt=b"s")
    shared = sum(a == b for a, b in zip(one, two, strict=True))

    assert prompt.ENDS[shared - 1] <= 300_000 < prompt.ENDS[shared]
    assert len(prompt.blocks(b"y" * 10_000_000, salt=b"s")) == prompt.MAX_BLOCKS


REQUEST = {
    "model": "m",
    "system": [{"type": "text", "text": "x-anthropic-billing-header: v=2.1.332.0b8;\nYou help. It is 2026-11-30."}],
    "tools": TOOLS,
    "messages": [
        {"role": "user", "content": "Now is November 30, 2026"},
        {"role": "assistant", "content": "So it is 2026-11-30"},
        {"role": "user", "content": [{"type": "tool_result", "content": "created 2026-11-30"}]},
    ],
}


def test_what_is_volatile_is_taken_out_of_the_prompt_on_request() -> None:
    body, hit = normalise.strip(json.dumps(REQUEST).encode(), normalise.RULES)
    read = json.loads(body)

    assert set(hit) == {"marker", "date", "tools", "keys"}
    assert read["system"][0]["text"] == "You help. It is <date>."
    assert read["messages"][0]["content"] == "Now is <date>"
    assert read["messages"][1:] == REQUEST["messages"][1:]  # type: ignore[index]
    assert sorted(map(str, read["tools"])) != list(map(str, TOOLS))


def test_only_what_was_asked_is_taken_out() -> None:
    body, hit = normalise.strip(json.dumps(REQUEST).encode(), ("marker",))
    assert hit == ("marker",)
    assert json.loads(body)["system"][0]["text"] == "You help. It is 2026-11-30."
    same = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    assert normalise.strip(same, normalise.RULES[:3]) == (same, ())


@pytest.mark.parametrize(
    "odd", [b"[1]", b'{"messages":[1]}', b'{"messages":{"role":"user"}}', b'{"input":"2026-11-30"}']
)
def test_odd_requests_are_left_alone(odd: bytes) -> None:
    assert normalise.strip(odd, normalise.RULES)[0] == odd
