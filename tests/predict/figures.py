"""Models, logs and data files for the tests of the planner."""

import json
from pathlib import Path

import msgspec

from stoker.drivers import figures
from stoker.predict.cases import LogRow, Start, start
from stoker.predict.shape import Shape

DATA = Path(__file__).parents[1] / "data/planner"
MODELS = figures.model_rows([DATA / "models.json", DATA / "more_models.json"])
CASES = json.loads((DATA / "memory_cases.json").read_text())
LOGS = msgspec.json.decode((DATA / "memory_cases.json").read_bytes(), type=list[LogRow])


def shape(model: str) -> Shape | None:
    row = MODELS.get(model.lower())
    return row.shape if row else None


def starts() -> list[Start]:
    found = [start(row, MODELS.get(row.model.lower())) for row in LOGS]
    return [each for each in found if each is not None]
