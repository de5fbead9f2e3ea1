"""The starts that were checked: one line each in the state directory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Driver
from stoker.predict.seen import Case

_LINE: Final = msgspec.json.Decoder(Case)


def read(path: Path) -> list[Case]:
    """Read all of them; raises Driver naming a line that is damaged."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Driver(f"{path}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_LINE.decode(line))
        except msgspec.MsgspecError as error:
            raise Driver(f"{path}:{number}: it cannot be read ({error}); remove the line") from error
    return found


def add(path: Path, case: Case) -> Sequence[Case]:
    """Add one; the same start told twice counts once."""
    known = read(path)
    if any(msgspec.structs.replace(each, at=case.at) == case for each in known):
        return known
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        line = msgspec.json.encode(case) + b"\n"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
            file.write(line)
    except OSError as error:
        raise Driver(f"{path}: {error.strerror}") from error
    return [*known, case]
