"""Fuzz what follows an engine's answer: any bytes in any dialect for any client, cut anywhere.

Nothing may raise; what the client gets, how the answer ended and what was counted do not depend on the cuts; a
translated stream is whole events; and no terminator is written for an answer that has none.
"""

import re
import sys

import atheris

with atheris.instrument_imports(include=["stoker"]):
    from stoker.facts.ending import Outcome
    from stoker.wire.follower import Follower
    from stoker.wire.pairs import Call, Pair, follower, read, voice
    from stoker.wire.sse import Splitter, data_of

BLANK = re.compile(rb"[\r\n]{3,}$|\n{3,}")  # more empty lines than one between two events say nothing
DIALECTS = ("chat", "messages", "responses")
ASKED = {
    "chat": read("chat", b'{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function"}]}'),
    "messages": read("messages", b'{"model":"m","max_tokens":9,"messages":[],"tools":[{"name":"f"}]}'),
    "responses": read("responses", b'{"model":"m","input":"hi"}'),
}
TERMINATORS = {"chat": b"data: [DONE]", "messages": b"event: message_stop", "responses": b"event: response.completed"}
ENDED = (Outcome.COMPLETE, Outcome.LENGTH, Outcome.TOOL_CALLS, Outcome.REFUSAL)


def fed(pair: Pair, call: Call, data: bytes, cuts: list[int]) -> tuple[Follower, bytes]:
    asked = ASKED[pair.client]
    follow = follower(pair, asked, call=call, speaks=voice(pair.client, asked, call=call))
    out, start = b"", 0
    for end in (*sorted(cuts), len(data)):
        if start < end:
            out += follow.feed(data[start:end], 1.0)
        start = max(start, end)
    if not follow.done:
        out += follow.flush(1.0)
    return follow, out


def one(data: bytes) -> None:
    """Run one input: its first bytes choose the dialects, how the client is answered, and where it is cut."""
    if len(data) < 6:
        return
    pair = Pair(client=DIALECTS[data[0] % 3], upstream=DIALECTS[data[1] % 3])
    call = Call(id="x", stream=not data[2] & 1, strip_usage=bool(data[2] & 2), aggregate=bool(data[2] & 1), created=1)
    text = data[6:]
    cuts = [mark * max(1, len(text)) // 256 for mark in data[3:6]]
    follow, out = fed(pair, call, text, [])
    again, cut = fed(pair, call, text, cuts)
    assert BLANK.sub(b"\n\n", out) == BLANK.sub(b"\n\n", cut), f"cut at {cuts}: {out!r} and {cut!r}"
    ending = follow.ending(cut="")
    assert ending == again.ending(cut="")
    assert follow.tokens() == again.tokens()
    if call.aggregate and ending.outcome in ENDED:
        assert follow.body() == again.body()
    if pair.client != pair.upstream and call.stream:
        splitter = Splitter()
        assert all(data_of(event) is not None for event in splitter.feed(out))
        assert not splitter.tail, f"half an event: {splitter.tail!r}"
        if ending.outcome is Outcome.TRUNCATED:
            assert TERMINATORS[pair.client] not in out, f"a terminator that the engine never sent: {out!r}"


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
