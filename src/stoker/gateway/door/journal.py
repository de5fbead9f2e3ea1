"""What is noted of each finished request? One line of JSON: who, what, how it ended. No text, no secret, no query.

1. A request pays for making its line, nothing else: a thread writes what has gathered.
2. A disk that is full or hangs loses lines, which are counted, and never a request: at most 4 MiB wait.
3. Each worker has a file of its own, so that two never turn one over at the same time.
"""

import contextlib
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from stoker.facts.door import AccessLog
from stoker.facts.probe import CALLER as PROBE_CALLER
from stoker.facts.record import Record

_MOST_WAITING: Final = 4 << 20
_STDOUT: Final = 1
_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("gateway.journal")


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One request."""

    at: str
    request_id: str
    client: str = ""
    caller: str = ""
    key_id: str = ""
    service: str = ""
    model: str = ""
    endpoint: str = ""
    dialect: str = ""
    path: str
    stream: bool = False
    status: int
    outcome: str
    detail: str = ""
    attempts: int = 0
    queue_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    first_token_seconds: float = 0.0
    total_seconds: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Journal:
    """The access log of one worker."""

    def __init__(self, rules: AccessLog, path: Path) -> None:
        self._rules = rules
        self._path = path
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file = _STDOUT if rules.stdout else -1
        self._written = 0
        self._torn = False  # the last write broke off inside a line
        self._second = (-1, "")
        self.lost = 0
        self.problem = ""

    def add(self, record: Record, client: str) -> None:
        """Note a request; the controller's probes are the health checks of engines and are left out."""
        if record.caller == PROBE_CALLER:
            return
        if self._waiting_bytes >= _MOST_WAITING:
            self.lost += 1
            return
        spent, took = record.tokens, record.times
        line = _encode(
            Line(
                at=self._time(record.at),
                request_id=record.request_id,
                client=client,
                caller=record.caller,
                key_id=record.key_id,
                service=record.service,
                model=record.model,
                endpoint=record.endpoint,
                dialect=record.dialect,
                path=record.path,
                stream=record.stream,
                status=record.status,
                outcome=record.outcome.value,
                detail=record.detail,
                attempts=record.attempts,
                queue_seconds=round(took.queue, 6),
                first_byte_seconds=round(took.first_byte, 6),
                first_token_seconds=round(took.first_token, 6),
                total_seconds=round(took.total, 6),
                prompt_tokens=spent.prompt,
                cached_tokens=spent.cached,
                output_tokens=spent.output,
            )
        )
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def _time(self, at: float) -> str:
        second = int(at)
        if second != self._second[0]:
            self._second = (second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
        return f"{self._second[1]}.{int(at * 1000) % 1000:03d}Z"

    def take(self) -> bytes:
        """Take what has gathered; called in the event loop."""
        if not self._waiting:
            return b""
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        lines.append(b"")
        return b"\n".join(lines)

    def write(self, lines: bytes) -> None:
        """Write lines; called in a thread. A disk that refuses costs the lines, and says so once."""
        data = b"\n" + lines if self._torn else lines
        try:
            if not self._rules.stdout and (self._file < 0 or self._written + len(data) > self._rules.max_bytes):
                self._turn()
            done = 0
            while done < len(data):
                done += os.write(self._file, data[done:])
                self._torn = done < len(data)
            self._written += len(data)
        except OSError as error:
            self.lost += lines.count(b"\n")
            self._fail(error)
            return
        self.problem = ""

    def _turn(self) -> None:
        """Begin a file: the one that is full becomes .1, what was .1 becomes .2, and the oldest goes."""
        if self._file >= 0:
            self._shut()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_size >= self._rules.max_bytes or self._written:
                for number in range(self._rules.keep - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        self._numbered(number).rename(self._numbered(number + 1))
                self._path.rename(self._numbered(1))
        for old in self._path.parent.glob(f"{self._path.name}.*"):
            suffix = old.name.rpartition(".")[2]
            if suffix.isdigit() and int(suffix) > self._rules.keep:
                old.unlink(missing_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._written = os.fstat(self._file).st_size

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _fail(self, error: OSError) -> None:
        problem = f"access log: {error.strerror or error}"
        if problem != self.problem:
            _log.warning("access log", extra={"fields": {"why": problem}})
        self.problem = problem

    def _shut(self) -> None:
        file, self._file = self._file, -1
        with contextlib.suppress(OSError):
            os.close(file)

    def close(self) -> None:
        """Write the rest and close."""
        lines = self.take()
        if lines:
            self.write(lines)
        if self._file >= 0 and not self._rules.stdout:
            self._shut()
