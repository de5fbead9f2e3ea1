"""Answers of engines that are no answers: each was found by the fuzzer."""

import asyncio

import pytest

from stoker.http1.pool import Call, End, Pool


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


class Heard:
    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.ends: list[End] = []

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def up_body(self, data: bytes) -> None:
        self.body += data

    def up_end(self, end: End, *, stale: bool) -> None:
        self.ends.append(end)


@pytest.mark.parametrize(
    ("answer", "status", "end"),
    [
        (b"HTTP/1.0 004 OK\r\n\r\nbody", 0, End.GARBAGE),
        (b"HTTP/1.1 199 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0, End.GARBAGE),
        (b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", 204, End.COMPLETE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 500 X\r\n\r\n", 200, End.COMPLETE),
    ],
    ids=["a status below 100", "an interim answer with a body", "two answers", "two answers, the first empty"],
)
def test_what_comes_behind_an_answer_is_never_the_next_one(answer: bytes, status: int, end: End) -> None:
    pool, transport, heard = Pool("http://127.0.0.1:1"), Wire(), Heard()
    call = Call(pool)
    call.connection_made(transport)
    call.start(heard, (b"GET / HTTP/1.1\r\n\r\n",))
    call.data_received(answer)

    assert (heard.status, heard.body, heard.ends) == (status, b"", [end])
    assert transport.closed
    assert pool.idle == []
