"""Each real client does one tool turn through the gateway: translated to chat, and passed through."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.drive import AGENTS, Agent
from tests.clients.gateway import CHAT, EVERY, Gateway, gateway
from tests.clients.scripted import FINAL, Scripted

from stoker.facts.ending import Outcome


@pytest.fixture(scope="module", params=[CHAT, EVERY], ids=["translated", "passed-through"])
def door(
    request: pytest.FixtureRequest, running: Scripted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), running, dialects=request.param) as made:
        yield made


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.label)
def test_a_tool_turn(agent: Agent, door: Gateway, engine: Scripted, tmp_path: Path) -> None:
    before = len(door.records())
    done = agent.run(door.told(), tmp_path)

    assert done.code == 0, done.said
    assert FINAL in done.said
    assert (tmp_path / "work" / "proof.txt").read_text() == "kindling\n"
    assert [r["answered"] for r in engine.requests if r["body"].get("tools")] == [False, True]
    records = [r for r in door.records()[before:] if r.dialect in ("chat", "messages", "responses")]
    assert len(records) == len(engine.requests)
    assert {r.outcome for r in records} <= {Outcome.COMPLETE, Outcome.TOOL_CALLS}
    assert all(r.tokens.prompt > 0 and r.tokens.output > 0 and not r.tokens.estimated for r in records)
