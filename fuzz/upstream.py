"""Fuzz the reading of engines' answers: any bytes, cut anywhere.

Nothing may raise, each call ends exactly once, the body is the same however it was cut, and a connection whose answer
was not whole by its own framing is never used again.
"""

import asyncio
import sys

import atheris

with atheris.instrument_imports(include=["stoker"]):
    from stoker.http1.pool import Call, End, Pool

from server import Transport


class Listener:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.ends: list[End] = []

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        assert not self.status, "two heads"
        assert status >= 200
        assert all(name == name.lower() for name in headers)
        self.status = status

    def up_body(self, data: bytes) -> None:
        assert self.status, "a body before its head"
        assert not self.ends
        self.body += data

    def up_end(self, end: End, *, stale: bool) -> None:
        assert not self.ends, "two ends"
        assert not stale
        self.ends.append(end)


class Buffered(Transport):
    """A transport of which all is written at once."""

    def get_write_buffer_size(self) -> int:
        return 0


def heard(data: bytes, cuts: list[int]) -> Listener:
    pool = Pool("http://127.0.0.1:1")
    call, transport, listener = Call(pool), Buffered(), Listener()
    call.connection_made(transport)
    call.start(listener, (b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",))
    start = 0
    for end in (*sorted(cuts), len(data)):
        if start < end and not transport.closed:
            call.data_received(data[start:end])
        start = max(start, end)
    kept = call in pool.idle
    call.connection_lost(None)
    assert len(listener.ends) == 1
    if kept:
        assert listener.ends == [End.COMPLETE]
        assert listener.status
    pool.close()
    return listener


def one(data: bytes) -> None:
    """Run one input: its first bytes say where it is cut."""
    count = data[0] % 5 if data else 0
    marks, text = data[1 : 1 + count], data[1 + count :]
    cuts = [mark * max(1, len(text)) // 256 for mark in marks]
    whole, cut = heard(text, []), heard(text, cuts)
    assert whole.status == cut.status
    least = min(len(whole.body), len(cut.body))
    assert whole.body[:least] == cut.body[:least]
    if whole.ends == cut.ends == [End.COMPLETE]:
        assert whole.body == cut.body


if __name__ == "__main__":
    asyncio.set_event_loop(asyncio.new_event_loop())
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
