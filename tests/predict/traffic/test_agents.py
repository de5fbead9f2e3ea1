"""Recorded agents: conversations with subagents, as AgentX and the Weka corpus write them."""

import json
from pathlib import Path

import pytest

from stoker.base.errors import Invalid
from stoker.drivers.figures import given

TRACE = {
    "id": "trace_0001",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "tool_tokens": 100,
    "requests": [
        {"t": 0.0, "type": "n", "model": "m", "in": 200, "out": 20, "hash_ids": [1, 2, 3], "stop": "tool_use"},
        {"t": 4.0, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore", "status": "completed",
         "requests": [
             {"t": 4.5, "type": "s", "model": "m", "in": 130, "out": 9, "hash_ids": [10, 11], "ttft": 0.4},
             {"t": 6.0, "type": "s", "model": "m", "in": 260, "out": 9, "hash_ids": [10, 11, 12, 13]},
         ]},
        {"t": 9.0, "type": "n", "model": "m", "in": 330, "out": 40, "hash_ids": [1, 2, 3, 4, 5], "think_time": 1.0},
    ],
}  # fmt: skip


def rows(path: Path) -> list[tuple[float, int, int, int]]:
    return [
        (a.at, a.request.prompt_tokens, a.request.output_tokens, a.request.shared_tokens) for a in given.traffic(path)
    ]


def test_a_conversation_and_its_subagent(tmp_path: Path) -> None:
    one = tmp_path / "trace.json"
    one.write_text(json.dumps(TRACE, indent=2))
    assert rows(one) == [(0.0, 200, 20, 0), (4.5, 130, 9, 0), (6.0, 260, 9, 128), (9.0, 330, 40, 192)]
    assert len({a.request.session for a in given.traffic(one)}) == 2

    many = tmp_path / "traces.jsonl"
    many.write_text(json.dumps(TRACE) + "\n" + json.dumps({**TRACE, "id": "trace_0002"}) + "\n")
    assert len(rows(many)) == 8
    assert len({a.request.session for a in given.traffic(many)}) == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"block_size": 0}, "block_size"),
        ({"requests": [{"t": 0, "type": "n", "in": 5}]}, r"requests\[0\].in, .out: a request without its tokens"),
        ({"requests": [{"t": -1, "type": "n", "in": 5, "out": 5}]}, r"requests\[0\]"),
        ({"requests": []}, "it has no rows"),
    ],
)
def test_holes_are_named(tmp_path: Path, change: dict, told: str) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({**TRACE, **change}))
    with pytest.raises(Invalid, match=told) as raised:
        given.traffic(file)
    assert "t.json" in str(raised.value)
