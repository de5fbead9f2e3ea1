"""Fuzz what clients ask: any bytes as a body, for any pair of dialects.

Nothing but Invalid may be raised; what goes to an engine is JSON, with the output cap in it and never above it.
"""

import sys

import atheris

with atheris.instrument_imports(include=["stoker"]):
    from stoker.base.errors import Invalid
    from stoker.wire import normalise, prompt
    from stoker.wire.pairs import Pair, prepare, read

import msgspec

DIALECTS = ("chat", "messages", "responses")
CAPS = {
    "chat": ("max_tokens", "max_completion_tokens"),
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
}


def one(data: bytes) -> None:
    """Run one input: its first byte chooses the dialects."""
    if not data:
        return
    client, upstream = DIALECTS[data[0] % 3], DIALECTS[data[0] // 3 % 3]
    body = data[1:]
    try:
        asked = read(client, body)
    except Invalid:
        return
    prompt.head(asked.conversation(prompt.HEAD_BYTES), tools=bytes(asked.tools))
    prompt.blocks(prompt.plain(asked.head(prompt.REACH)), salt=b"s")
    prompt.turn(asked.turns)
    assert asked.size >= 0
    assert asked.session_key is None or isinstance(asked.session_key, str)
    normalise.strip(body, normalise.RULES)
    try:
        change = prepare(body, asked, pair=Pair(client=client, upstream=upstream), cap=77, model="up", stream=True)
    except Invalid:
        return
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # in a member that we do not read: it goes on as it is, and the engine refuses it
    sent = msgspec.json.decode(change.body)
    limits = [sent[name] for name in CAPS[upstream] if sent.get(name) is not None]
    assert limits, f"no output cap: {change.body!r}"
    assert all(0 <= limit <= 77 for limit in limits), f"above the cap: {change.body!r}"
    assert sent["model"] == "up"
    assert sent["stream"] is True


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
