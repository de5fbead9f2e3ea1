"""What becomes of an engine's bytes? Forwarded as they are, put together into one answer, or passed on as an error."""

from collections.abc import Callable
from typing import Final

import msgspec

from stoker.decide.deadline import late
from stoker.facts.ending import Ending, Outcome
from stoker.facts.routes import Timeouts
from stoker.gateway.answer import Answer
from stoker.gateway.surface.refusal import engine_refuses
from stoker.gateway.troubles import CUT, TOO_LARGE, Trouble, garbled
from stoker.http1.inflate import Inflate, unpacker
from stoker.wire.faults import recognise
from stoker.wire.follower import Follower

_MAX_WHOLE_BYTES: Final = 256 << 20  # embeddings of a large batch; a stream is never kept

_NO_STREAM: Final = Trouble(
    status=502, code="upstream_no_stream", message="The engine answered without a stream, and one was asked for."
)


class _Error(msgspec.Struct):
    """An error event; engines put a status, a name or nothing into ``code``."""

    code: int | str | None = None


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer ends: the outcome for the record, the client's status, and what writes the rest."""

    ending: Ending
    status: int
    write: Callable[[], None]


class Relay(msgspec.Struct, eq=False):
    """The engine's side of one forwarded request."""

    answer: Answer
    _aggregate: bool
    progress: float = 0.0  # when the engine last said something that is no comment
    status: int = 0
    events: bool = False  # the answer is an event stream
    started: bool = False
    trouble: Trouble | None = None  # why the answer cannot be passed on
    _parts: list[bytes] = []
    _size: int = 0
    _seen: int = 0
    _type: bytes = b""
    _after: bytes = b""
    _unpack: Inflate | None = None

    def begin(self, now: float) -> None:
        """Begin a try."""
        self.progress = now
        if self.status or self.trouble is not None:  # not the first
            self._parts = []
            self._size = self._seen = self.status = 0
            self._type = self._after = b""
            self.events = self.started = False
            self.trouble = self._unpack = None

    @property
    def failing(self) -> bool:
        """Whether the engine has answered with an error, whose status must still reach the client."""
        return self.status >= 400

    def late(self, limits: Timeouts, now: float, *, waited: float, asked: float | None) -> str:
        """Name the time limit that is over; see `stoker.decide.deadline`."""
        return late(limits, waited=waited, asked=asked, silent=now - self.progress if self.started else None)

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the engine's head."""
        self.status = status
        self._after = headers.get(b"retry-after", b"") if status >= 400 else b""
        self._type = headers.get(b"content-type", b"application/json")
        self.events = status == 200 and self._type.startswith(b"text/event-stream")
        if b"content-encoding" in headers:  # nobody asked for it, but some proxies in front of engines do it
            try:
                self._unpack = unpacker(headers[b"content-encoding"])
            except ValueError as error:
                self.trouble = garbled(str(error))

    def feed(self, follow: Follower, data: bytes, now: float) -> bytes:
        """Take bytes of the body; give those that go to the client now."""
        if self._unpack is not None:
            try:
                data = self._unpack.feed(data)
            except ValueError as error:
                self.trouble = garbled(str(error))
                return b""
        if not self.events:
            self.started = True
            self.progress = now
            self._size += len(data)
            if self._size > _MAX_WHOLE_BYTES:
                self.trouble = TOO_LARGE
            self._parts.append(data)
            return b""
        out = follow.feed(data, now)
        if follow.chunks != self._seen:
            self._seen = follow.chunks
            self.progress = now
            # An engine may say that it has begun and then read the prompt for minutes: that is not yet an answer.
            self.started = follow.first_token_at > 0
        return out

    def last(self, follow: Follower, out: bytes, *, cut: str, now: float) -> Last:
        """Say how the answer ends. ``out`` was fed and not sent yet; ``cut``: the connection ended before the body."""
        if not self.events:
            return self._whole(follow, cut=cut, now=now)
        if not cut and not follow.done:
            out += follow.flush(now)
        ending = follow.ending(cut=cut)
        if self._aggregate:
            return self._together(follow, ending)
        answer = self.answer
        if ending.outcome is Outcome.TRUNCATED:
            status = 200 if answer.committed or out else CUT.status
            return Last(ending=ending, status=status, write=lambda: answer.fail(CUT, out))
        return Last(ending=ending, status=200, write=lambda: answer.end(out))

    def _together(self, follow: Follower, ending: Ending) -> Last:
        answer = self.answer
        if ending.outcome is Outcome.TRUNCATED:
            return Last(ending=ending, status=CUT.status, write=lambda: answer.fail(CUT))
        if ending.outcome is Outcome.ERROR:
            error = follow.error or b"null"
            return self._refused(_status_in(error), b'{"error":%b}' % error, ending)
        return Last(ending=ending, status=200, write=lambda: answer.whole(200, follow.body()))

    def _whole(self, follow: Follower, *, cut: str, now: float) -> Last:
        """End an answer that is no stream: the engine's JSON, or its error."""
        answer, status, kind = self.answer, self.status, self._type
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if status >= 400 and not cut:
            return self._refused(status, body, Ending(outcome=Outcome.ERROR, detail=str(status)))
        if status != 200 and not cut:  # a redirect or an empty answer: its status would promise what is not there
            return self._unusable(garbled(f"its status is {status}"))
        if cut or not follow.whole(body, now):
            ending = Ending(outcome=Outcome.TRUNCATED, detail=cut or "clean")
            return Last(ending=ending, status=CUT.status, write=lambda: answer.fail(CUT))
        if answer.streams:  # who reads events would read nothing in it, and take that for an answer
            return self._unusable(_NO_STREAM)
        ending = follow.ending(cut="")
        if not answer.dialect.capped:  # nothing was to be generated, so nothing is missing
            ending = Ending(outcome=ending.outcome, detail=ending.detail)
        return Last(
            ending=ending,
            status=status,
            write=lambda: answer.whole(status, follow.body(), content_type=kind),
        )

    def _unusable(self, trouble: Trouble) -> Last:
        """End with an answer that is none for this client."""
        ending = Ending(outcome=Outcome.ERROR, detail=str(trouble.status))
        return Last(ending=ending, status=trouble.status, write=lambda: self.answer.fail(trouble))

    def _refused(self, status: int, body: bytes, ending: Ending) -> Last:
        """End with what the engine refused, by its status or inside its answer, as the client can act on it."""
        answer = self.answer
        refusal = engine_refuses(recognise(status, body), answer.ticket, body, after=self._after)
        return Last(ending=ending, status=refusal.status, write=lambda: answer.refuse(refusal))


def _status_in(error: bytes) -> int:
    try:
        code = msgspec.json.decode(error, type=_Error).code
    except msgspec.DecodeError:
        return 502
    return code if isinstance(code, int) and 400 <= code < 600 else 502
