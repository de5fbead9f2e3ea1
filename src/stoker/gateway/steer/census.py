"""How many tokens is this prompt? The engine is asked, outside of its slots; silence and errors mean: unknown."""

from collections.abc import Callable

from stoker.gateway.fleet import Upstream
from stoker.http1.pool import Call, End
from stoker.wire import tokenise
from stoker.wire.tokenise import Question


class Census:
    """One count, of one or two questions. It reports once, unless it is dropped."""

    __slots__ = ("_call", "_done", "_parts", "_status", "_up")

    def __init__(self, up: Upstream, done: Callable[[int | None], None]) -> None:
        self._up = up
        self._done = done
        self._call: Call | None = None
        self._status = 0
        self._parts: list[bytes] = []

    def ask(self, question: Question, *, connect: float) -> None:
        """Send a question."""
        up = self._up
        self._status, self._parts = 0, []
        head = b"POST %b%bcontent-length: %d\r\n\r\n" % (question.path, up.fields, len(question.body))
        self._call = up.pool.send(self, (head, question.body), connect=connect)

    def drop(self) -> None:
        """Stop waiting; nothing is reported."""
        call, self._call = self._call, None
        if call is not None:
            call.abort()

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the head."""
        del headers
        self._status = status

    def up_body(self, data: bytes) -> None:
        """Keep the body."""
        self._parts.append(data)

    def up_end(self, end: End, *, stale: bool) -> None:
        """Read the answer. A kept connection that had died counts as silence: the engine itself will decide."""
        del stale
        self._call = None
        found = None
        if end is End.COMPLETE and self._status == 200:
            found = tokenise.answer(self._up.spec.engine, b"".join(self._parts))
        if isinstance(found, Question):
            self.ask(found, connect=1.0)
        else:
            self._done(found)
