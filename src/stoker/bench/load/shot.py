"""How does one request go? It follows its own answer while that comes, and says in the end what became of it."""

from array import array
from collections.abc import Callable
from typing import Final

from stoker.base import clock
from stoker.bench.load.talk import Ask, Talk
from stoker.decide.measure.classes import class_of
from stoker.decide.measure.sample import Sample
from stoker.facts.ending import Ending, Outcome
from stoker.facts.record import Gaps, Tokens
from stoker.http1.pool import Call, End
from stoker.wire.errors import text_of
from stoker.wire.follower import Follower

_STREAM: Final = b"text/event-stream"
_MOST_ERROR_BYTES: Final = 64 << 10
_SHOWN: Final = 300
_NO_TOKENS: Final = Tokens()
_NO_GAPS: Final = Gaps()


class Shot:
    """One request under way; the listener of its call. It reads the clock once for each read from the socket."""

    __slots__ = (
        "ask",
        "body",
        "call",
        "deadline",
        "done",
        "ended_at",
        "ending",
        "follow",
        "gaps",
        "head_at",
        "heard_at",
        "keep",
        "message",
        "number",
        "rest",
        "retry",
        "scheduled",
        "sent_again",
        "sent_at",
        "status",
        "stream",
        "talk",
    )

    def __init__(
        self, ask: Ask, follow: Follower, *, number: int, scheduled: float, done: Callable[["Shot"], None], keep: bool
    ) -> None:
        self.ask = ask
        self.follow = follow
        self.number = number
        self.scheduled = scheduled
        self.done = done
        self.keep = keep  # the stream is kept, for the next turn says what this one answered
        self.talk: Talk | None = None
        self.call: Call | None = None
        self.body: tuple[bytes, ...] = ()
        self.retry: Callable[[Shot], None] | None = None
        self.deadline = 0.0
        self.sent_at = self.head_at = self.heard_at = self.ended_at = 0.0
        self.gaps = array("d")
        self.rest: list[bytes] = []
        self.status = 0
        self.stream = False
        self.sent_again = False
        self.message = ""
        self.ending: Ending | None = None

    # What the pool reports.

    def up_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Note when the first byte came, and how the body is to be read."""
        self.head_at = self.heard_at = clock.mono()
        self.status = status
        self.stream = status == 200 and headers.get(b"content-type", b"").startswith(_STREAM)

    def up_body(self, data: bytes) -> None:
        """Follow what one read brought."""
        now = self.heard_at = clock.mono()
        if not self.stream:
            if self.status == 200 or sum(map(len, self.rest)) < _MOST_ERROR_BYTES:
                self.rest.append(data)
            return
        follow = self.follow
        before = follow.last_token_at
        follow.feed(data, now)
        if before and follow.last_token_at != before:
            self.gaps.append(now - before)
        if self.keep:
            self.rest.append(data)
        if follow.done:
            call = self.call
            if call is not None:
                call.release()
            self._end(now, follow.ending(cut=""))

    def up_end(self, end: End, *, stale: bool) -> None:
        """Say how it ended; on a kept connection that had died it is sent again, once."""
        if stale and not self.sent_again and self.retry is not None:
            self.sent_again = True
            self.retry(self)
            return
        now = clock.mono()
        self._end(now, self._ended(end, now))

    # The end.

    def cut(self, ending: Ending | None) -> None:
        """End it from our side."""
        if self.call is not None:
            self.call.abort()
        self._end(clock.mono(), ending)

    def _end(self, now: float, ending: Ending | None) -> None:
        self.ended_at = now
        self.ending = ending
        self.retry = None
        self.done(self)

    def _ended(self, end: End, now: float) -> Ending:
        if end is End.CONNECT:
            return Ending(outcome=Outcome.ERROR, detail="connect")
        if end is End.TIMEOUT:
            return Ending(outcome=Outcome.TIMEOUT, detail="connect")
        if end is End.GARBAGE:
            return Ending(outcome=Outcome.ERROR, detail="not_http")
        cut = "" if end is End.COMPLETE else end.value
        if self.stream:
            if not cut:
                self.follow.flush(now)
            return self.follow.ending(cut=cut)
        if not self.status or (cut and self.status == 200):
            return Ending(outcome=Outcome.TRUNCATED, detail=cut or "clean")
        return self._whole(now)

    def _whole(self, now: float) -> Ending:
        """Read an answer that is no stream: a refusal, or one body where a stream was asked for."""
        body = b"".join(self.rest)
        if self.status != 200:
            self.message = text_of(body)[:_SHOWN]
            return Ending(outcome=Outcome.ERROR, detail=str(self.status))
        if not self.follow.whole(body, now):
            return Ending(outcome=Outcome.ERROR, detail="not_json")
        return self.follow.ending(cut="")

    def sample(self, begun: float) -> Sample:
        """Write down what became of it."""
        ask, follow, due, ending = self.ask, self.follow, self.scheduled, self.ending
        message = self.message
        if follow.error is not None and not message:
            message = text_of(b'{"error":%b}' % follow.error)[:_SHOWN]
        return Sample(
            number=self.number,
            kind=class_of(ending),
            scheduled_seconds=due - begun,
            outcome=ending.outcome if ending is not None else None,
            detail=ending.detail if ending is not None else "",
            flags=ending.flags if ending is not None else (),
            status=self.status,
            message=message,
            session=ask.session,
            turn=ask.turn,
            asked_prompt_tokens=ask.prompt_tokens,
            asked_output_tokens=ask.output_tokens,
            shared_tokens=ask.shared_tokens,
            tokens=follow.tokens() if self.status == 200 else _NO_TOKENS,
            send_lag_seconds=max(0.0, self.sent_at - due),
            first_byte_seconds=_since(self.head_at, due),
            first_token_seconds=_since(follow.first_token_at, due),
            first_visible_seconds=_since(follow.first_visible_at, due),
            last_token_seconds=_since(follow.last_token_at, due),
            total_seconds=_since(self.ended_at, due),
            gaps=follow.gaps() if self.status == 200 else _NO_GAPS,
            reads=len(self.gaps) + 1 if follow.last_token_at else 0,
            repairs=follow.repairs,
            sent_again=self.sent_again,
        )


def _since(at: float, due: float) -> float:
    return at - due if at else 0.0
