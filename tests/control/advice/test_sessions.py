"""Which credentials of agents are warned about?"""

import pytest

from stoker.base import clock
from stoker.base.json import JsonObject
from stoker.control.advice.sessions import shortfalls
from stoker.drivers.store.base import Resource

NOW = 1_800_000_000.0
CODING = Resource(kind="UseCase", name="coding", namespace="default", spec={"preset": "coding-agent"})  # two hours
BATCH = Resource(kind="UseCase", name="batch", namespace="default", spec={"preset": "batch"})
CASES = (CODING, BATCH)


def service(name: str, case: str) -> Resource:
    spec: JsonObject = {"endpoints": [{"selector": {"matchLabels": {"a": "b"}}}]}
    if case:
        spec["useCaseRef"] = {"name": case}
    return Resource(kind="ModelService", name=name, namespace="default", spec=spec)


SERVICES = (service("code", "coding"), service("night", "batch"), service("free", ""), service("lost", "nowhere"))


def agent(allowed: str, **credential: object) -> Resource:
    key = {"hash": "sha256:" + "0" * 64, "id": "k-1", **credential}
    spec = {"kind": "Agent", "allow": {"services": [allowed]}, "credentials": [key]}
    return Resource(kind="Caller", name="bot", spec=spec)  # type: ignore[arg-type]


def at(hours: float) -> str:
    return clock.rfc3339(NOW + hours * 3600)


@pytest.mark.parametrize(
    ("caller", "warned"),
    [
        pytest.param(agent("*"), False, id="without end"),
        pytest.param(agent("*", expiresAt=at(1)), True, id="shorter than the longest session"),
        pytest.param(agent("*", expiresAt=at(3)), False, id="longer"),
        pytest.param(agent("*", expiresAt=at(-1)), True, id="over already"),
        pytest.param(agent("*", expiresAt=at(3), notBefore=at(1.5)), True, id="begins late"),
        pytest.param(agent("*", expiresAt=at(1), revoked=True), False, id="revoked"),
        pytest.param(agent("default/code", expiresAt=at(1)), True, id="for the service of long sessions"),
        pytest.param(agent("default/night", expiresAt=at(1)), False, id="for a service without sessions"),
        pytest.param(agent("default/free", expiresAt=at(1)), False, id="for a service without a use case"),
        pytest.param(agent("default/lost", expiresAt=at(1)), False, id="for a use case that is not there"),
        pytest.param(
            agent("*", hash=None, type="JWT", subject="bot@x", expiresAt=at(1)), True, id="a subject of tokens"
        ),
    ],
)
def test_shortfalls(caller: Resource, *, warned: bool) -> None:
    told = list(shortfalls(caller, SERVICES, CASES, now=NOW))
    assert bool(told) is warned
    if warned:
        assert told[0].startswith("Caller/bot: credential ")
        assert "UseCase/coding last 2 h" in told[0]
