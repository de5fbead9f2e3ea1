"""The planner's data files: coefficients and the catalogue of cards, versioned, in the package."""

from functools import cache
from importlib import resources
from typing import TypeVar

import msgspec

from stoker.base.errors import Driver
from stoker.predict.coefficients import Coefficients
from stoker.predict.gpu import Gpu


class _Catalogue(msgspec.Struct, frozen=True):
    version: int
    gpus: tuple[Gpu, ...]


_File = TypeVar("_File", Coefficients, _Catalogue)


@cache
def coefficients() -> Coefficients:
    """The coefficients that come with this version."""
    return _read("coefficients.json", Coefficients)


@cache
def gpus() -> tuple[Gpu, ...]:
    """The catalogue that comes with this version."""
    return _read("gpus.json", _Catalogue).gpus


def _read(name: str, kind: type[_File]) -> _File:
    data = (resources.files("stoker.drivers.figures") / name).read_bytes()
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Driver(f"the data file {name} of this installation is damaged: {error}") from error
