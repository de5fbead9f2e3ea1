"""What the real clients do when something goes wrong behind the gateway: how often they ask, and whether they end.

The counts are measured facts of these versions (docs/clients.md); a bound that breaks means that a client changed, or
that the gateway's answers no longer tell it what they told it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.drive import AGENTS, Agent
from tests.clients.gateway import Gateway, gateway
from tests.clients.scripted import FINAL, Scripted

LABELLED = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.label)


@pytest.fixture(scope="module")
def door(running: Scripted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), running) as made:
        yield made


@LABELLED
@pytest.mark.parametrize(
    "fault",
    [{"status": 503, "retry_after_seconds": 1}, {"cut_after_tokens": 1}],
    ids=["a 503 with retry-after", "a cut"],
)
def test_a_fault_that_passes_costs_one_more_request(
    agent: Agent, door: Gateway, engine: Scripted, tmp_path: Path, fault: dict[str, object]
) -> None:
    engine.play(**fault, times=1)
    done = agent.run(door.told(), tmp_path)

    assert done.code == 0, done.said
    assert FINAL in done.said
    turns = [request for request in engine.requests if request["body"].get("tools")]
    assert 2 <= len(turns) <= 3  # of opencode it is the title's request that meets the fault


@LABELLED
def test_a_wrong_key_is_told_and_not_tried_for_long(
    agent: Agent, door: Gateway, engine: Scripted, tmp_path: Path
) -> None:
    before = len(door.records())
    done = agent.run(door.told(key="sk-wrong"), tmp_path, limit=30)

    assert done.code not in (0, None), done.said
    assert "key" in done.said.lower()
    assert engine.requests == []
    asked = {"claude-code": 1, "codex": 3, "opencode": 2}[agent.client]
    assert len(door.records()) - before == asked


@LABELLED
@pytest.mark.optin
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("fault", "most"),
    [
        ({"cut_after_tokens": 1}, {"claude-code": 12, "codex": 3, "opencode": 2}),
        ({"cut_after_tokens": 1, "cut": "reset"}, {"claude-code": 12, "codex": 3, "opencode": 2}),
        ({"status": 429, "retry_after_seconds": 1}, {"claude-code": 5, "codex": 3, "opencode": 12}),
        ({"status": 503, "retry_after_seconds": 1}, {"claude-code": 5, "codex": 9, "opencode": 12}),
    ],
    ids=["clean cut", "reset", "429", "503"],
)
def test_a_fault_that_stays_ends_a_client_before_it_floods_the_gateway(
    agent: Agent,
    door: Gateway,
    engine: Scripted,
    tmp_path: Path,
    fault: dict[str, object],
    most: dict[str, int],
) -> None:
    """Without the gateway's error frame a clean cut sent opencode into a loop of 102 requests in 45 s."""
    engine.play(**fault)
    done = agent.run(door.told(), tmp_path, limit=90)

    assert FINAL not in done.said
    assert 0 < len(engine.requests) <= most[agent.client]
    if agent.client != "opencode" or "status" not in fault:
        assert done.code not in (0, None), done.said
