"""Real processes: each test has a machine of its own, or shares one that runs the tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.machine import Machine, machine
from tests.models import tiny


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("tiny")).gguf


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Machine]:
    """A machine on which nothing runs yet."""
    with machine(tmp_path / "state") as made:
        yield made


@pytest.fixture
def running(tmp_path: Path, tiny_gguf: Path) -> Iterator[Machine]:
    """A machine of its own that serves the tiny model as ``tiny``."""
    with machine(tmp_path / "state") as made:
        made.up("--model", str(tiny_gguf))
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Path) -> Iterator[Machine]:
    """One machine for all tests of a file; they must leave it as it was."""
    with machine(tmp_path_factory.mktemp("shared") / "state") as made:
        made.up("--model", str(tiny_gguf))
        yield made
