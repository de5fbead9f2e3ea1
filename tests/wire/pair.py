"""One answer through one pair of dialects, as the gateway drives it."""

from pathlib import Path

import msgspec

from stoker.wire.follower import Follower
from stoker.wire.pairs import Call, Pair, follower, read, voice

DATA = Path(__file__).parents[1] / "data" / "streams"
DIALECTS = ("chat", "messages", "responses")


def recorded(name: str) -> bytes:
    data = (DATA / name).read_bytes().replace(b"\r\n", b"\n")
    return data.partition(b"\n\n")[2].lstrip() if data.startswith(b"HTTP") else data


def begin(
    client: str,
    upstream: str,
    *,
    stream: bool = True,
    engine: str = "llama.cpp",
    strip: bool = False,
    ask: dict[str, object] | None = None,
    whole: bool = False,
) -> Follower:
    asked = read(client, msgspec.json.encode({"model": "m", "stream": stream, **(ask or {})}))
    call = Call(id="w-1", stream=stream, strip_usage=strip, aggregate=not stream and not whole, created=1_796_000_000)
    pair = Pair(client=client, upstream=upstream, engine=engine)
    return follower(pair, asked, call=call, speaks=voice(client, asked, call=call))


def fed(follow: Follower, data: bytes, *, size: int = 1 << 30) -> bytes:
    """Feed an answer in pieces, then its clean end."""
    out = b"".join(follow.feed(data[at : at + size], float(at + 1)) for at in range(0, len(data), size))
    return out if follow.done else out + follow.flush(float(len(data) + 1))


def chat_events(*chunks: object, done: bool = True) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "x"}
    wire = b"".join(
        b"data: %b\n\n" % msgspec.json.encode({**head, **chunk} if isinstance(chunk, dict) else chunk)
        for chunk in chunks
    )
    return wire + b"data: [DONE]\n\n" if done else wire


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def tool(index: object = 0, **fields: object) -> dict[str, object]:
    """A piece of a call: ``id``, ``name`` and ``arguments`` where given."""
    function = {name: fields[name] for name in ("name", "arguments") if name in fields}
    rest = {name: value for name, value in fields.items() if name not in function}
    place = {} if index is None else {"index": index}
    return delta(tool_calls=[{**place, **rest, "function": function}])


def usage(prompt: int, output: int, cached: int = 0, reasoning: int = 0) -> dict[str, object]:
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        },
    }


# Reasoning, text, two calls at once, the usage behind the finish: what an agent's engine sends.
AGENT = chat_events(
    delta(role="assistant", content=""),
    delta(reasoning_content="First "),
    delta(reasoning_content="think."),
    delta(content="I shall \u201clook\u201d \U0001f50e"),
    delta(content=" now.\n"),
    tool(0, id="call_a", type="function", name="look", arguments=""),
    tool(0, arguments='{"where": "h'),
    tool(0, arguments='\\u00e4re"}'),
    tool(1, id="call_b", type="function", name="wait", arguments=""),
    tool(1, arguments='{"s":1}'),
    delta("tool_calls"),
    usage(100, 30, cached=64, reasoning=4),
)
