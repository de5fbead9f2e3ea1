"""What becomes of an engine's bytes? Forwarded as they are, put together into one answer, or passed on as an error."""

from collections.abc import Callable
from typing import Final

import msgspec

from stoker.facts.ending import Ending, Outcome
from stoker.gateway.answer import Answer, Trouble
from stoker.wire.aggregate import Aggregate
from stoker.wire.stream import Follow

_MAX_WHOLE_BYTES: Final = 256 << 20  # embeddings of a large batch; a stream is never kept

_CUT: Final = Trouble(
    status=502, code="upstream_truncated", message="The engine's answer broke off.", kind="upstream_error"
)


class _Error(msgspec.Struct):
    """An error event; engines put a status, a name or nothing into ``code``."""

    code: int | str | None = None


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer ends: the outcome for the record, the client's status, and what writes the rest."""

    ending: Ending
    status: int
    write: Callable[[], None]


class Relay:
    """The engine's side of one forwarded request."""

    __slots__ = (
        "_aggregate",
        "_answer",
        "_parts",
        "_seen",
        "_size",
        "_strip",
        "_type",
        "events",
        "follow",
        "progress",
        "started",
        "status",
        "too_big",
    )

    def __init__(self, answer: Answer, *, strip_usage: bool, aggregate: bool) -> None:
        self._answer = answer
        self._strip = strip_usage
        self._aggregate = Aggregate() if aggregate else None
        self.follow = Follow(strip_usage=strip_usage)
        self.reset(0.0)

    def reset(self, now: float) -> None:
        """Begin a new try."""
        self._parts: list[bytes] = []
        self._size = 0
        self._seen = 0
        self._type = b""
        self.status = 0
        self.events = False  # the answer is an event stream
        self.started = False
        self.too_big = False
        self.progress = now  # when the engine last said something that is no comment

    @property
    def failing(self) -> bool:
        """Whether the engine has answered with an error, whose status must still reach the client."""
        return self.status >= 400

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the engine's head."""
        self.status = status
        self._type = headers.get(b"content-type", b"application/json")
        self.events = status == 200 and self._type.startswith(b"text/event-stream")

    def feed(self, data: bytes, now: float) -> bytes:
        """Take bytes of the body; give those that go to the client now."""
        if not self.events:
            self.started = True
            self.progress = now
            self._size += len(data)
            self.too_big = self._size > _MAX_WHOLE_BYTES
            self._parts.append(data)
            return b""
        follow = self.follow
        aggregate = self._aggregate
        out = b""
        if aggregate is None:
            out = follow.feed(data, now)
        else:
            self._add(aggregate, follow.payloads(data, now))
        if follow.chunks != self._seen:
            self._seen = follow.chunks
            self.started = True
            self.progress = now
        return out

    def _add(self, aggregate: Aggregate, payloads: list[bytes]) -> None:
        for payload in payloads:
            if not self.follow.broken and self.follow.error is None:
                aggregate.add(payload)

    def last(self, out: bytes, *, cut: str, now: float) -> Last:
        """Say how the answer ends. ``out`` was fed and not sent yet; ``cut``: the connection ended before the body."""
        if not self.events:
            return self._whole(cut=cut, now=now)
        if not cut and not self.follow.done:
            tail = self.follow.flush(now)
            out += tail
            if self._aggregate is not None and tail:
                self._add(self._aggregate, self.follow.payloads_of(tail))
        ending = self.follow.ending(cut=cut)
        if self._aggregate is not None:
            return self._together(self._aggregate, ending)
        answer = self._answer
        if ending.outcome is Outcome.TRUNCATED:
            status = 200 if answer.committed or out else _CUT.status
            return Last(ending=ending, status=status, write=lambda: answer.fail(_CUT, out))
        return Last(ending=ending, status=200, write=lambda: answer.end(out))

    def _together(self, aggregate: Aggregate, ending: Ending) -> Last:
        answer = self._answer
        if ending.outcome is Outcome.TRUNCATED:
            return Last(ending=ending, status=_CUT.status, write=lambda: answer.fail(_CUT))
        if ending.outcome is Outcome.ERROR:
            error = self.follow.error or b"null"
            status = _status_in(error)
            body = answer.dialect.errors.in_shape(status, b'{"error":%b}' % error)
            return Last(ending=ending, status=status, write=lambda: answer.whole(status, body))
        if self.follow.reports > 1:
            tokens = self.follow.tokens()
            aggregate.count(prompt=tokens.prompt, output=tokens.output)
        return Last(ending=ending, status=200, write=lambda: answer.whole(200, aggregate.body()))

    def _whole(self, *, cut: str, now: float) -> Last:
        """End an answer that is no stream: the engine's JSON, or its error."""
        answer, status, kind = self._answer, self.status, self._type
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if cut or (status == 200 and not self.follow.whole(body, now)):
            ending = Ending(outcome=Outcome.TRUNCATED, detail=cut or "clean")
            return Last(ending=ending, status=_CUT.status, write=lambda: answer.fail(_CUT))
        if status >= 400:
            shaped = answer.dialect.errors.in_shape(status, body)
            ending = Ending(outcome=Outcome.ERROR, detail=str(status))
            return Last(ending=ending, status=status, write=lambda: answer.whole(status, shaped))
        return Last(
            ending=self.follow.ending(cut=""),
            status=status,
            write=lambda: answer.whole(status, body, content_type=kind),
        )


def _status_in(error: bytes) -> int:
    try:
        code = msgspec.json.decode(error, type=_Error).code
    except msgspec.DecodeError:
        return 502
    return code if isinstance(code, int) and 400 <= code < 600 else 502
