"""The reference pages say what the code says."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands.md", "conditions.md", "resources.md"])
def test_reference_is_fresh(name: str) -> None:
    made = _generator().PAGES[name]().rstrip("\n") + "\n"

    assert (ROOT / "docs/reference" / name).read_text() == made, "run `make docs`"
