"""An engine whose truth is known: the scripted one, in a process and on a core of its own."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Driver
from stoker.base.json import JsonObject

_MODEL: Final = "rehearsal"


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """When an answer's tokens really went out, in seconds since its request was whole."""

    first_token_seconds: float
    last_token_seconds: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A running engine."""

    url: str
    model: str
    script: Path
    told: Path

    def play(self, behaviour: JsonObject) -> None:
        """Let it behave so from now on, and forget what it told."""
        fresh = self.script.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(behaviour))
        fresh.replace(self.script)
        self.told.write_bytes(b"")

    def truth(self) -> list[Truth]:
        """Tell when tokens went out since then, answer by answer."""
        return [msgspec.json.decode(line, type=Truth) for line in self.told.read_bytes().splitlines()]


@contextlib.contextmanager
def known(*, slots: int = 512) -> Iterator[Known]:
    """Run it until the end of the block, away from the core that measures where there are two. Raises Driver."""
    with tempfile.TemporaryDirectory() as folder, _on_a_core_of_our_own() as others:
        script, told = Path(folder) / "script.json", Path(folder) / "truth.jsonl"
        script.write_bytes(b"{}")
        argv = [sys.executable, "-m", "stoker.rehearse", "--port", "0", "--script", str(script), "--truth", str(told)]
        process = subprocess.Popen(  # noqa: S603 -- our own module
            [*argv, "--max-sequences", str(slots)], stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            if others:
                os.sched_setaffinity(process.pid, others)
            line = process.stderr.readline() if process.stderr is not None else ""
            if "listening on " not in line:
                raise Driver(f"the rehearsal engine did not start: {line.strip() or 'it said nothing'}")
            address = line.partition("listening on ")[2].partition(",")[0]
            yield Known(url=f"http://{address}", model=_MODEL, script=script, told=told)
        finally:
            process.terminate()
            process.wait(10)
            if process.stderr is not None:
                process.stderr.close()


@contextlib.contextmanager
def _on_a_core_of_our_own() -> Iterator[set[int]]:
    """Keep this process to one core while it lasts; gives the others, none where there is only one."""
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield set()
        return
    mine = max(cores)
    os.sched_setaffinity(0, {mine})
    try:
        yield cores - {mine}
    finally:
        os.sched_setaffinity(0, cores)
