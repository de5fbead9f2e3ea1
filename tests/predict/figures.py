"""Models, logs and data files for the tests of the planner."""

import json
from pathlib import Path

import msgspec

from stoker.predict.cases import LogRow, ModelRow, Start, start
from stoker.predict.shape import Shape

DATA = Path(__file__).parents[1] / "data/planner"
# Context limits of public configs, where the table that an engine makes of them is large.
_CONTEXTS = {"meta-llama/Llama-4-Scout-17B-16E-Instruct": 10 * 2**20, "meta-llama/Llama-3.1-8B-Instruct": 2**17}
_ROWS = msgspec.json.decode((DATA / "models.json").read_bytes(), type=list[ModelRow])
MODELS = {
    row.model.lower(): msgspec.structs.replace(row, context=_CONTEXTS.get(row.model, row.context)) for row in _ROWS
}
CASES = json.loads((DATA / "memory_cases.json").read_text())
LOGS = msgspec.json.decode((DATA / "memory_cases.json").read_bytes(), type=list[LogRow])


def shape(model: str) -> Shape | None:
    row = MODELS.get(model.lower())
    return row.shape if row else None


def starts() -> list[Start]:
    found = [start(row, MODELS.get(row.model.lower())) for row in LOGS]
    return [each for each in found if each is not None]
