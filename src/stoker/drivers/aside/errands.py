"""How is a large request translated while the loop goes on? In a process beside it.

A thread would not do: decoding holds the interpreter, and 10 MB held the loop for 21 ms from a thread. The process is
started when it is first needed, does one request at a time, and ends when it has had nothing to do for a while. Should
it die, the request that it worked on fails and the next one gets a new process: what kills it is not tried twice.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Final, cast

import msgspec

from stoker.base import clock
from stoker.drivers.aside.frames import HEAD, Job, Said, begun

LARGE_BYTES: Final = 2 << 20  # below, translating costs the loop less than what it costs to hand the body over
_IDLE: Final = 60.0
_LONGEST: Final = 60.0  # one that takes longer hangs; 64 MB, the largest body that is taken, needs two seconds
_ARGUMENTS: Final = ("-P", "-m", "stoker.drivers.aside")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an errand: a body, or why there is none."""

    body: bytes = b""
    splices: tuple[str, ...] = ()
    invalid: str = ""  # the request cannot be said in that dialect
    failed: str = ""  # the translator could not do it


class Errand:
    """One request that is translated. It reports once, unless it is dropped."""

    __slots__ = ("body", "done", "job")

    def __init__(self, job: Job, body: bytes, done: Callable[[Told], None]) -> None:
        self.job = job
        self.body = body
        self.done: Callable[[Told], None] | None = done

    def drop(self) -> None:
        """Stop waiting; nothing is reported."""
        self.done = None

    def tell(self, told: Told) -> None:
        """Report."""
        done, self.done = self.done, None
        if done is not None:
            done(told)


class Aside:
    """The translator of one worker, and those who wait for it."""

    def __init__(self) -> None:
        self._waiting: deque[Errand] = deque()
        self._current: Errand | None = None
        self._since = 0.0  # when the current one began, or the last one ended
        self._translator: _Translator | None = None
        self._starts: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int:
        """The process that works now; 0: none does."""
        return self._translator.pid if self._translator is not None else 0

    def translate(self, job: Job, body: bytes, done: Callable[[Told], None]) -> Errand:
        """Translate a body; ``done`` is called later, never at once."""
        errand = Errand(job, body, done)
        self._waiting.append(errand)
        self._next()
        return errand

    def _next(self) -> None:
        if self._current is not None:
            return
        while self._waiting and self._waiting[0].done is None:  # its client has left
            self._waiting.popleft()
        if not self._waiting:
            return
        self._current = self._waiting.popleft()
        self._since = clock.mono()
        if self._translator is not None:
            self._translator.give(self._current)
            return
        task = asyncio.get_running_loop().create_task(self._start())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def _start(self) -> None:
        translator = _Translator(self)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: translator, sys.executable, *_ARGUMENTS, stderr=None
            )
        except OSError as error:
            self._end(Told(failed=f"the translator cannot be started: {error.strerror or error}"))
            return
        self._translator = translator
        if self._current is not None:
            translator.give(self._current)

    def ended(self, translator: "_Translator", told: Told) -> None:
        """Take what the translator says of the current errand; whoever waits is next."""
        if translator is self._translator:
            self._end(told)

    def lost(self, translator: "_Translator") -> None:
        """Take note that the translator is gone."""
        if translator is self._translator:
            self._translator = None
            self._end(Told(failed="the translator ended in the middle of it"))

    def _end(self, told: Told) -> None:
        errand, self._current = self._current, None
        self._since = clock.mono()
        if errand is not None:
            errand.tell(told)
        self._next()

    def sweep(self, now: float) -> None:
        """End a translator that hangs, or that has had nothing to do for a while."""
        translator = self._translator
        if translator is not None and now - self._since > (_IDLE if self._current is None else _LONGEST):
            translator.kill()

    def close(self) -> None:
        """End it; whoever waits hears nothing more."""
        self._waiting.clear()
        if self._current is not None:
            self._current.drop()
        for task in self._starts:
            task.cancel()
        translator, self._translator = self._translator, None
        if translator is not None:
            translator.kill()


class _Translator(asyncio.SubprocessProtocol):
    """The process, as its pipes are read."""

    def __init__(self, aside: Aside) -> None:
        self._aside = aside
        self._transport: asyncio.SubprocessTransport | None = None
        self._head = bytearray()  # until the small part is there
        self._said: Said | None = None
        self._body = bytearray()
        self._missing = 0  # bytes of the body

    @property
    def pid(self) -> int:
        return self._transport.get_pid() if self._transport is not None else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)  # uvloop's own class is no subclass of it

    def give(self, errand: Errand) -> None:
        """Write an errand. The pipe takes it piece by piece, between everything else that the loop does."""
        pipe = self._transport.get_pipe_transport(0) if self._transport is not None else None
        if pipe is not None:
            stdin = cast("asyncio.WriteTransport", pipe)
            stdin.write(begun(errand.job, len(errand.body)))
            stdin.write(errand.body)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        del fd  # there is one
        if self._said is None:
            self._head += data
            if len(self._head) < HEAD.size:
                return
            part_bytes, self._missing = HEAD.unpack_from(self._head)
            if len(self._head) < HEAD.size + part_bytes:
                return
            self._said = msgspec.json.decode(self._head[HEAD.size : HEAD.size + part_bytes], type=Said)
            data = bytes(self._head[HEAD.size + part_bytes :])
            self._head.clear()
        self._body += data  # as it comes: joining 10 MB at their end would hold everybody up
        self._missing -= len(data)
        if self._missing <= 0:
            said, self._said = self._said, None
            body, self._body = self._body, bytearray()
            told = Told(body=cast("bytes", body), splices=said.splices, invalid=said.invalid)
            self._aside.ended(self, told)

    def process_exited(self) -> None:
        self._aside.lost(self)

    def kill(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.close()  # kills what still runs
            self._aside.lost(self)
