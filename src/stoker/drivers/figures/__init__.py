"""The planner's data files: coefficients and the catalogue of cards, versioned, in the package."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from stoker.base.errors import Driver, Fault, Invalid
from stoker.predict.cases import LogRow, ModelRow
from stoker.predict.coefficients import Coefficients, Speed
from stoker.predict.gpu import Gpu


class _Catalogue(msgspec.Struct, frozen=True):
    version: int
    gpus: tuple[Gpu, ...]


_Row = TypeVar("_Row", ModelRow, LogRow)
_File = TypeVar("_File", Coefficients, Speed, _Catalogue)


@cache
def coefficients() -> Coefficients:
    """The coefficients that come with this version."""
    return _read("coefficients.json", Coefficients)


@cache
def gpus() -> tuple[Gpu, ...]:
    """The catalogue that comes with this version."""
    return _read("gpus.json", _Catalogue).gpus


@cache
def speed() -> Speed:
    """The coefficients of time that come with this version."""
    return _read("times.json", Speed)


def model_rows(paths: Sequence[Path]) -> Mapping[str, ModelRow]:
    """Models of measurement files, by their names in small letters."""
    found = [row for path in paths for row in _listed(path, ModelRow)]
    return {row.model.lower(): row for row in found}


def log_rows(path: Path) -> Sequence[LogRow]:
    """Start-up logs of a measurement file."""
    return _listed(path, LogRow)


def _listed(path: Path, kind: type[_Row]) -> list[_Row]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(path))) from error
    except msgspec.MsgspecError as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=str(path))) from error


def _read(name: str, kind: type[_File]) -> _File:
    data = (resources.files("stoker.drivers.figures") / name).read_bytes()
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Driver(f"the data file {name} of this installation is damaged: {error}") from error
