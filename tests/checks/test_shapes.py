"""Recorded requests become bodies of the recorded size and shape, without any recorded text."""

import json
from pathlib import Path

import pytest

from stoker.checks.conformance.shapes import Shape, filler, read, shapes

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "captures").glob("*.jsonl"))
LINES = [(path.stem, line) for path in CAPTURES for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("line", [line for _, line in LINES], ids=[name for name, _ in LINES])
def test_every_recorded_request_can_be_filled(line: bytes) -> None:
    shape = read(line)
    body = json.dumps(shape.filled("m"))

    assert "chars>" not in body
    assert "<uuid>" not in body
    if shape.body:
        assert json.loads(body)["model"] == "m"
        assert (
            abs(len(json.dumps(shape.body, separators=(",", ":"))) - shape.body_bytes) < 0.05 * shape.body_bytes + 300
        )


def test_the_package_has_shapes_of_every_client() -> None:
    found = {(shape.client.rsplit("-", 1)[0], shape.surface) for shape in shapes()}

    assert {("claude-code", "messages"), ("codex", "responses"), ("opencode", "chat")} <= found


def test_what_a_tool_gave_back_is_one_again() -> None:
    codex = [shape for shape in shapes() if shape.client.startswith("codex")]
    kinds = [item["type"] for shape in codex for item in _items(shape)]

    assert "function_call_output" in kinds
    assert not any("<" in kind for kind in kinds)


def _items(shape: Shape) -> list[dict]:
    return shape.body["input"]  # type: ignore[return-value]


@pytest.mark.parametrize("length", [0, 1, 58, 59, 60, 9113])
def test_filler_has_its_length(length: int) -> None:
    assert len(filler(length)) == length
