"""One tool turn in each dialect with a real model on the real llama.cpp, through a whole Stoker."""

from collections.abc import Iterator

import pytest
from tests.clients.coder import TEMPLATE, coder
from tests.e2e.machine import Machine, machine
from tests.e2e.manifests import gateway, llama, service, text

from stoker.checks.conformance import suite
from stoker.checks.conformance.probe import State, Talk

pytestmark = [pytest.mark.optin, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("real") / "state") as made:
        made.start()
        engine = {"contextTokens": 16384, "maxSequences": 1, "chatTemplate": str(TEMPLATE)}
        documents = text(gateway(), llama("coder", coder(), engine=engine), service("coder"))
        # Its files name no licence; upstream's is Apache-2.0.
        made.ok("apply", "-f", "-", "--accept-licence", str(coder()), stdin=documents)
        made.wait("the model answers", lambda: "yes" in made.ok("status"), within=300)
        yield made


# Its own /v1/responses numbers no event; it holds once that dialect is translated for llama.cpp.
UNNUMBERED = pytest.mark.xfail(reason="llama.cpp's events have no sequence_number", strict=False)


@pytest.mark.parametrize("dialect", ["chat", "messages", pytest.param("responses", marks=UNNUMBERED)])
def test_a_tool_turn_on_a_real_model(plane: Machine, dialect: str) -> None:
    talk = Talk(url=plane.url.removesuffix("/v1"), key=plane.key, model="coder", timeout=300)
    names = {f"{dialect}.{name}" for name in ("whole", "stream", "tools", "system-in-the-middle")}
    rows = list(suite.run(talk, [p for p in suite.all_probes() if p.name in names]))

    assert [(row.name, row.finding) for row in rows if row.finding.state is not State.PASS] == []
