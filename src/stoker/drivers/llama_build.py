"""Which model architectures does the embedded llama.cpp build name?

Its list is a table of names inside the library; a name that does not stand there ends in "unknown model architecture"
after the file was opened, so it is asked before.
"""

import importlib.util
import mmap
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=256)
def knows(architecture: str) -> bool:
    """Tell whether the library names the architecture; without a library to read, nothing is ruled out."""
    libraries = _libraries()
    if not libraries:
        return True
    needle = architecture.encode() + b"\0"  # the linker lets names share a tail, so no zero stands before
    return any(_contains(path, needle) for path in libraries)


@lru_cache(maxsize=1)
def _libraries() -> tuple[Path, ...]:
    spec = importlib.util.find_spec("xllamacpp")
    folders = spec.submodule_search_locations if spec else None
    return tuple(sorted(path for folder in folders or () for path in Path(folder).rglob("*.so*")))


def _contains(path: Path, needle: bytes) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(needle) >= 0
