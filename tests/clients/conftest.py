"""Everything here starts real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.scripted import Scripted, scripted


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(300))  # the first run fetches the binaries


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """One engine for all tests of a file."""
    with scripted(tmp_path_factory.mktemp("engine"), secret="engine-key") as made:
        yield made


@pytest.fixture
def engine(running: Scripted) -> Scripted:
    """The same engine, with a fresh script."""
    running.play()
    return running
