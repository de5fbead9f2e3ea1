"""Shapes from the compact rows of tests/data/planner/models.json."""

import json
from pathlib import Path

from stoker.predict.shape import Attends, Layer, Shape

DATA = Path(__file__).parents[1] / "data/planner"
MODELS = {m["model"].lower(): m for m in json.loads((DATA / "models.json").read_text())}
CASES = json.loads((DATA / "memory_cases.json").read_text())


def shape(model: str) -> Shape | None:
    row = MODELS.get(model.lower())
    if row is None:
        return None
    moe = "E" in row
    full = Layer(attends=Attends.FULL, kv_heads=row.get("kv", 0), head_dim=row.get("hd", 0), experts=moe)
    layers = _special(row, full) + [full] * row["L"]
    return Shape(
        layers=tuple(layers[: row["L"]]),
        hidden=row["H"],
        intermediate=row["I"],
        vocab=row["V"],
        heads=row["nh"],
        experts=row.get("E", 0),
        experts_per_token=row.get("k", 0),
        expert_intermediate=row.get("Im", 0),
        shared_experts=row.get("sh", 0),
        vision=bool(row.get("mm")),
        gated=row.get("gated", 1) != 0,
    )


def _special(row: dict, full: Layer) -> list[Layer]:
    """Layers that are not of the plain kind; the rest is filled up with plain ones."""
    if "mla" in row:
        rank, rope = row["mla"]
        return [Layer(attends=Attends.LATENT, latent_rank=rank, rope_dim=rope, experts=full.experts)] * row["L"]
    for name, kind in (("swa", Attends.SLIDING), ("chunk", Attends.CHUNKED)):
        if name in row:
            count, window = row[name]
            one = Layer(
                attends=kind, kv_heads=full.kv_heads, head_dim=full.head_dim, window=window, experts=full.experts
            )
            return [one] * count
    if "gdn" in row:
        count, _, keys, values, rows, columns, width = row["gdn"]
        one = Layer(
            attends=Attends.LINEAR,
            conv_dim=2 * keys * rows + values * columns,
            conv_width=width,
            state_heads=values,
            state_rows=rows,
            state_columns=columns,
            experts=full.experts,
        )
        return [one] * count
    return []
