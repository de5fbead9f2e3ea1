"""Each command is read from its own home, and no home is forgotten."""

import subprocess
import sys

import pytest
import typer

from stoker.cli import main


def commands(app: typer.Typer) -> set[str]:
    group = typer.main.get_command(app)
    return set(getattr(group, "commands", {}))


ALL = commands(main.build())


def test_every_command_has_a_home_that_has_it() -> None:
    named = {name for names in main._HOMES.values() for name in names} | set(main._GROUPS) | {"version"}
    assert named == ALL


@pytest.mark.parametrize("command", sorted(ALL))
def test_a_command_alone_is_the_same(command: str) -> None:
    assert command in commands(main.build(command))


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["up"], "up"),
        (["--state-dir", "up", "status", "--help"], "status"),
        (["-n", "x", "get", "md"], "get"),
        (["--state-dir=/x", "key", "list"], "key"),
        (["--help"], ""),
        (["-h", "up"], ""),
        ([], ""),
    ],
)
def test_the_command_is_found_behind_the_options(words: list[str], want: str) -> None:
    assert main.named(words) == want


def test_a_command_that_is_none_is_told_with_the_nearest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stoker.cli.main", "stauts"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "stauts" in done.stderr
    assert "status" in done.stderr
