"""Events are found wherever the bytes are cut, and never changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wire.sse import Splitter, data_of


@pytest.mark.parametrize(
    ("event", "data"),
    [
        pytest.param(b"data: x\n\n", b"x", id="plain"),
        pytest.param(b"data:x\n\n", b"x", id="no space"),
        pytest.param(b"data:  x\n\n", b" x", id="one space goes"),
        pytest.param(b"data: a\ndata: b\n\n", b"a\nb", id="two lines"),
        pytest.param(b"event: e\r\ndata: x\r\nid: 1\r\n\r\n", b"x", id="CRLF and other fields"),
        pytest.param(b"data: a\rdata: b\r\r", b"a\nb", id="CR"),
        pytest.param(b": comment\n\n", None, id="comment"),
        pytest.param(b"data\n\n", b"", id="a field without a value"),
        pytest.param(b"\ndata: x\n\n", b"x", id="a line end left over"),
    ],
)
def test_data(event: bytes, data: bytes | None) -> None:
    assert data_of(event) == data


TEXT = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=20)
EVENT = st.tuples(st.lists(TEXT, min_size=1, max_size=3), st.sampled_from(["\n", "\r\n", "\r"]))


@given(st.lists(EVENT, max_size=8), st.lists(st.integers(1, 30), max_size=40))
def test_cut_anywhere_nothing_is_lost_or_changed(events: list[tuple[list[str], str]], cuts: list[int]) -> None:
    wire = b"".join(("".join(f"data: {line}{end}" for line in lines) + end).encode() for lines, end in events)
    splitter, rest, out = Splitter(), wire, []
    for cut in cuts:
        out += splitter.feed(rest[:cut])
        rest = rest[cut:]
    out += splitter.feed(rest)

    assert b"".join(out) + splitter.tail == wire
    found = [data_of(event) for event in (*out, splitter.tail) if event]
    assert [data for data in found if data is not None] == ["\n".join(lines).encode() for lines, _ in events]


def test_every_cut_of_a_crlf_stream_gives_the_same_events() -> None:
    wire = "data: é\r\n\r\n: c\r\n\r\ndata: b\r\n\r\n".encode()
    for at in range(len(wire)):
        splitter = Splitter()
        events = splitter.feed(wire[:at]) + splitter.feed(wire[at:])
        assert [data_of(event) for event in events if data_of(event) is not None] == ["é".encode(), b"b"] or (
            splitter.tail.rstrip() == b"data: b"
        )
