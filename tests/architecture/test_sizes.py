"""The map must fit in one head: small files, few of them per folder, no dumps."""

import ast
from pathlib import Path

import pytest

import stoker

ROOT = Path(stoker.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
DUMPS = {"utils", "util", "common", "helpers", "helper", "misc", "shared", "tools", "manager", "core"}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_file_is_small(file: Path) -> None:
    source = file.read_text()
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert source.count("\n") <= 400
    assert max((f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno), default=0) <= 50


def test_no_folder_is_crowded() -> None:
    folders = {f.parent for f in FILES}

    assert {d.name: n for d in folders if (n := len(list(d.glob("*.py"))) - 1) > 15} == {}


def test_names_say_what_is_inside() -> None:
    assert [f for f in FILES if f.stem in DUMPS or f.parent.name in DUMPS] == []
