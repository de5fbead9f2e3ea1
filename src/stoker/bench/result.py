"""What does an experiment leave behind? One JSON with everything that a reader needs to judge it, and to repeat it."""

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from stoker import __version__
from stoker.base.errors import Fault, Invalid
from stoker.bench.plan import Plan
from stoker.bench.reach import Reached
from stoker.decide.measure import classes
from stoker.decide.measure.bar import Bar
from stoker.decide.measure.capacity import Capacity
from stoker.decide.measure.sample import Sample
from stoker.decide.measure.summary import Step
from stoker.decide.measure.versus import Difference
from stoker.drivers import files

SCHEMA_VERSION: Final = 1
_RESULT: Final = "result.json"
_REQUESTS: Final = "requests.jsonl"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """With what it was measured, and where from."""

    stoker: str
    python: str
    uvloop: str
    machine: str
    cores: int

    @classmethod
    def here(cls) -> "Setup":
        """This machine, this program."""
        return cls(
            stoker=__version__,
            python=platform.python_version(),
            uvloop=version("uvloop"),
            machine=f"{platform.system()} {platform.release()} {platform.machine()}",
            cores=len(os.sched_getaffinity(0)),
        )


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of whom. Two results are compared by these, one by one."""

    url: str
    model: str
    dialect: str
    server: str
    profile: str
    source: str
    unit: str
    window_seconds: float
    answers: str  # model | script: whose words stand for the earlier answers of a session
    head: str  # first | last
    exact_length: bool
    extra: str
    salt: str
    tokens_per_word: float
    tokens_per_message: float
    tokens_per_request: float

    @classmethod
    def of(cls, reached: Reached, plan: Plan) -> "Asked":
        """Write down a plan."""
        target = reached.target
        return cls(
            url=target.url,
            model=target.model,
            dialect=target.dialect,
            server=reached.server,
            profile=plan.profile.name,
            source=plan.profile.source,
            unit=plan.unit.value,
            window_seconds=plan.window_seconds,
            answers="model" if plan.model_answers else "script",
            head="last" if plan.head_last else "first",
            exact_length=plan.exact,
            extra=plan.extra.decode(),
            salt=plan.salt,
            tokens_per_word=1 / reached.book.words_per_token,
            tokens_per_message=reached.costs.message,
            tokens_per_request=reached.costs.request,
        )


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment."""

    schema_version: int = SCHEMA_VERSION
    kind: str  # run | ramp | compare
    at: str
    command: str
    setup: Setup
    asked: Asked
    bar: Bar | None
    steps: tuple[Step, ...]
    verdict: str = ""
    cannot_claim: tuple[str, ...] = ()
    capacity: Capacity | None = None
    difference: Difference | None = None
    notes: tuple[str, ...] = ()
    classes: tuple[tuple[str, str], ...] = tuple(classes.rows())


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the JSONL."""

    step: int
    load: float
    seed: int
    request: Sample


_read_line = msgspec.json.Decoder(Line).decode


def write(folder: Path, result: Result, samples: Sequence[Sequence[Sample]], page: str) -> None:
    """Write the result, its requests and its page. Raises Driver when the disk refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    encode = msgspec.json.Encoder().encode
    lines = [
        encode(Line(step=number, load=step.load, seed=step.seed, request=sample))
        for number, (step, rows) in enumerate(zip(result.steps, samples, strict=True))
        for sample in rows
    ]
    files.replace(folder / _REQUESTS, b"".join(line + b"\n" for line in lines), mode=0o644)
    files.replace(folder / "report.html", page.encode(), mode=0o644)
    files.replace(folder / _RESULT, msgspec.json.format(encode(result), indent=2) + b"\n", mode=0o644)


def read(path: Path) -> Result:
    """Read a result, or the one of a folder. Raises Invalid."""
    file = path / _RESULT if path.is_dir() else path
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(file))) from error
    except msgspec.MsgspecError as error:
        raise Invalid(Fault(message=f"it is no result of `stoker bench`: {error}", file=str(file))) from error


def samples(path: Path, result: Result) -> list[list[Sample]]:
    """Read the requests of a result's folder, a list for each step. Raises Invalid with the line."""
    file = path / _REQUESTS
    found: list[list[Sample]] = [[] for _ in result.steps]
    try:
        rows = file.read_bytes().splitlines()
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(file))) from error
    for number, row in enumerate(rows, 1):
        try:
            line = _read_line(row)
            found[line.step].append(line.request)
        except (msgspec.MsgspecError, IndexError) as error:
            message = f"it is no request of this result: {error}"
            raise Invalid(Fault(message=message, file=str(file), line=number)) from error
    return found


def command(arguments: Sequence[str] = ()) -> str:
    """Write the command that repeats this; keys are left out."""
    words = list(arguments or sys.argv[1:])
    shown, skip = [], False
    for word in words:
        if skip:
            skip = False
            continue
        if word == "--key":
            skip = True
            continue
        if word.startswith("--key="):
            continue
        shown.append(word)
    return shlex.join(["stoker", *shown])
