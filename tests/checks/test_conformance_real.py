"""The probes against the real llama.cpp: what it does as clients need it, and what the gateway has to make up for."""

from collections.abc import Iterator

import pytest
from tests.engines.test_llama_cpp_real import KEY, Served
from tests.models.tiny import make

from stoker.base import clock
from stoker.checks.conformance import suite
from stoker.checks.conformance.probe import State, Talk
from stoker.spec.deployment import EngineBlock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
# Of llama.cpp 11549. A row that passes one day is good news, and this set then gets smaller.
LACKS = {
    "messages.bad-json": "an error of the JSON parser has OpenAI's shape",
    "messages.structured": "output_config.format is passed over",
    "responses.null-members": "tools: null is refused",
    "responses.structured": "text.format is passed over",
    "responses.stream": "events have no sequence_number",
    "responses.tools": "the same",
    "responses.replay-python-sdks-2": "the same",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("llama")
    made = Served(folder, make(folder).gguf, EngineBlock(name="llama.cpp", context_tokens=4096, max_sequences=1))
    until = clock.mono() + 60
    while clock.mono() < until and made.process.poll() is None:
        try:
            if made.get("/health")[0] == 200:
                break
        except OSError:
            clock.sleep(0.1)
    yield made
    made.process.kill()
    made.process.wait()


def test_llama_cpp(served: Served) -> None:
    talk = Talk(url=f"http://127.0.0.1:{served.port}", key=KEY, model="team/tiny", timeout=60)
    probes = [p for p in suite.all_probes() if ".replay-c" not in p.name]  # 20,000 tokens are minutes on one core
    rows = list(suite.run(talk, probes))

    assert {row.name for row in rows if row.fails} <= set(LACKS), [row for row in rows if row.fails]
    passed = {row.name for row in rows if row.finding.state is State.PASS}
    assert {"chat.stream", "chat.usage-asked", "messages.stream", "responses.whole", "messages.count-tokens"} <= passed
