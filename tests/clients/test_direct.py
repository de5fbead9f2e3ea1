"""Each real client does one tool turn against the scripted engine itself: the engine is what they take it for."""

from pathlib import Path

import pytest
from tests.clients.drive import AGENTS, Agent
from tests.clients.scripted import FINAL, Scripted

from stoker.checks.clients.base import Service


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.label)
@pytest.mark.parametrize(
    "written",
    [
        pytest.param(True, id="key in the file"),
        pytest.param(False, id="key in the environment", marks=pytest.mark.optin),
    ],
)
def test_a_tool_turn(agent: Agent, engine: Scripted, tmp_path: Path, *, written: bool) -> None:
    service = Service(
        origin=f"http://127.0.0.1:{engine.port}",
        model="fire",
        key=engine.secret if written else "",
        context_tokens=131_072,
        output_tokens=8192,
        first_byte_seconds=600,
    )
    done = agent.run(service, tmp_path, key=engine.secret)

    assert done.code == 0, done.said
    assert FINAL in done.said
    assert (tmp_path / "work" / "proof.txt").read_text() == "kindling\n"
    turns = [r for r in engine.requests if r["body"].get("tools")]
    assert [r["answered"] for r in turns] == [False, True]
    assert {r["body"]["model"] for r in engine.requests} == {"fire"}
