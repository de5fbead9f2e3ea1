"""The file of a script, read again whenever it has changed. While it is absent or wrong, the last good one holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoker.base.errors import Invalid
from stoker.rehearse.script import Script, parse

PLAIN: Final = Script()
_NEVER: Final = (0, 0, 0)


class Rereading:
    """Call it for the script that holds now."""

    __slots__ = ("_path", "_say", "_script", "_seen")

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path = path
        self._say = say
        self._script = PLAIN
        self._seen: tuple[int, int, int] | None = _NEVER

    def __call__(self) -> Script:
        """Look at the file, and read it where it is another than before."""
        seen = self._look()
        if seen != self._seen:
            again, self._seen = self._seen != _NEVER, seen  # also of a wrong one: it is told once, not at each request
            self._read(again=again)
        return self._script

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def _read(self, *, again: bool) -> None:
        try:
            self._script = parse(self._path.read_bytes(), file=str(self._path))
        except OSError as error:
            self._say(f"script {self._path}: {error.strerror}; the last good one holds")
        except Invalid as error:
            self._say(f"{error}; the last good script holds")
        else:
            if again:
                self._say(f"script {self._path} is in force")
