"""An answer whose first token takes long arrives, with exactly one request to the engine for each turn."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clients.drive import AGENTS, CODEX_AGENT, Agent
from tests.clients.gateway import Gateway, gateway
from tests.clients.scripted import FINAL, Scripted

# Of the known clients only Codex lets its patience be made so short; the others' own is minutes: see the opt-in test.
IMPATIENT = {"model_providers": {"stoker": {"stream_idle_timeout_ms": 1500, "stream_max_retries": 0}}}


@pytest.fixture(scope="module")
def door(running: Scripted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), running, commit_after=0.3, keep_alive=0.5) as made:
        yield made


def test_silence_longer_than_a_clients_patience(door: Gateway, engine: Scripted, tmp_path: Path) -> None:
    engine.play(calls=0, first_token_seconds=4)
    done = CODEX_AGENT.run(door.told(), tmp_path / "gateway", more=IMPATIENT)  # type: ignore[arg-type]
    assert (done.code, len(engine.requests)) == (0, 1), done.said
    assert FINAL in done.said

    engine.play(calls=0, first_token_seconds=4)
    alone = replace(door.told(), origin=f"http://127.0.0.1:{engine.port}", key=engine.secret)
    gave_up = CODEX_AGENT.run(alone, tmp_path / "alone", more=IMPATIENT)  # type: ignore[arg-type]
    assert gave_up.code not in (0, None), "without keep-alives it must give up, else this test shows nothing"


@pytest.mark.optin
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.label)
def test_six_minutes_of_silence(
    agent: Agent, running: Scripted, engine: Scripted, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In real time, with the settings that the gateway and ``stoker connect`` give by themselves."""
    engine.play(calls=0, first_token_seconds=360)
    with gateway(tmp_path_factory.mktemp("gateway"), running) as door:
        done = agent.run(door.told(), tmp_path_factory.mktemp("client"), limit=1000)

    assert done.code == 0, done.said
    assert FINAL in done.said
    assert len([r for r in engine.requests if r["body"].get("tools")]) == 1
