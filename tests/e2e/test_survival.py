"""Kill everything that can be killed, under load from the real client, and count what is left.

The rule behind each test: a request that was answered has exactly one record; one that was not ended visibly; nothing
that runs is lost from sight.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import openai
from tests.e2e.machine import Machine

from stoker.base import clock

LENGTHS = (20, 200, 2000)  # tokens: at any moment somebody is in the middle of a long answer


@dataclass
class Seen:
    """What clients saw, by the request id that the gateway gave."""

    answered: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # an error after the answer had begun
    refused: list[str] = field(default_factory=list)  # no answer at all
    why: dict[str, str] = field(default_factory=dict)  # how each broken answer ended
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(self, made: Machine, *, tokens: int) -> None:
        """Ask once, streamed; tell how it ended."""
        client = openai.OpenAI(base_url=made.url, api_key=made.key, max_retries=0, timeout=30)
        request = ""
        try:
            raw = client.completions.with_raw_response.create(
                model="tiny", prompt="The engine", max_tokens=tokens, stream=True, extra_body={"ignore_eos": True}
            )
            request = raw.headers["x-request-id"]
            finish = [c.choices[0].finish_reason for c in raw.parse() if c.choices]
            assert finish
            assert finish[-1] == "length"
            self.answered.append(request)
        except AssertionError:
            # A stream that ended without an error and without a finish: the one thing that must never happen.
            self.broken.append(f"silently cut: {request}")
        except Exception as error:  # noqa: BLE001 - what is raised when a connection is cut is the HTTP library's own
            (self.broken if request else self.refused).append(request or repr(error))
            self.why[request] = type(error).__name__

    def forever(self, made: Machine, tokens: int) -> None:
        while not self.stop.is_set():
            self.ask(made, tokens=tokens)


@contextlib.contextmanager
def load(made: Machine, *, clients: int = 3) -> Iterator[Seen]:
    """Clients with answers of different length, for as long as the body runs."""
    seen = Seen()
    threads = [threading.Thread(target=seen.forever, args=(made, LENGTHS[i % 3])) for i in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        seen.stop.set()
        for thread in threads:
            thread.join(timeout=60)


def pause(seconds: float) -> None:
    clock.sleep(seconds)


def kill(made: Machine, module: str) -> list[int]:
    made.wait(f"{module} runs", lambda: made.pids(module))
    pids = made.pids(module)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def outcomes(made: Machine) -> dict[str, list[str]]:
    """The recorded outcomes of each request id."""
    found: dict[str, list[str]] = {}
    for record in made.data("usage", "--records", "--limit", "100000", "--since", "1h")["items"]:
        found.setdefault(record["request_id"], []).append(record.get("outcome", "complete"))
    return found


def assert_accounted(made: Machine, seen: Seen) -> None:
    """Every answered request has one record, and it says that it was answered; no stream was cut silently."""
    recorded = outcomes(made)
    assert [r for r in seen.broken if r.startswith("silently")] == []
    assert {r: recorded.get(r) for r in seen.answered if recorded.get(r) != ["length"]} == {}
    assert [r for r, found in recorded.items() if len(found) > 1] == []
    assert {r: recorded.get(r) for r in seen.broken if not recorded.get(r)} == {}


def ready(made: Machine) -> bool:
    name = made.replicas("tiny")[0]["metadata"]["name"]
    return made.condition("mr", name, "Ready")["status"] == "True"


def transitions(made: Machine) -> dict[tuple[str, str, str], tuple[str, str, str]]:
    """Status, reason and time of change of every condition of every resource."""
    return {
        (kind, found["metadata"]["name"], c["type"]): (c["status"], c["reason"], c["lastTransitionTime"])
        for kind in ("md", "mr", "ms", "ig", "mrt", "ic", "uc", "ca")
        for found in made.data("get", kind)["items"]
        for c in found["status"].get("conditions", [])
    }


def found_out(made: Machine) -> bool:
    """Everything that is asked of a new engine was answered, so that its conditions rest."""
    told = {kind: reason for (_, _, kind), (_, reason, _) in transitions(made).items()}
    return "MetricsComplete" in told and told["ParsersVerified"] != "Asking"


def answers(made: Machine) -> bool:
    seen = Seen()
    seen.ask(made, tokens=4)
    return bool(seen.answered)


def test_killing_the_controller_fails_no_request_and_restarts_no_engine(running: Machine) -> None:
    engines = running.pids("llama_server")
    running.wait("all is found out", lambda: found_out(running))
    before = transitions(running)
    with load(running) as seen:
        for wait in (0.3, 0.8, 0.1):
            pause(wait)
            kill(running, "stoker.control")
            running.wait(
                "the controller is back",
                lambda: running.pids("stoker.control") and running.run("status").returncode == 0,
            )
    replica = running.replicas()[0]

    assert (seen.broken, seen.refused) == ([], [])
    assert len(seen.answered) > 3
    assert running.pids("llama_server") == engines
    assert replica["status"]["restarts"] == 0
    assert transitions(running) == before
    assert_accounted(running, seen)


def test_a_rollout_goes_on_when_the_controller_dies_in_its_middle(running: Machine, tiny_gguf: Path) -> None:
    manifest = running.ok("get", "md", "tiny", "-o", "yaml").replace("contextTokens: 4096", "contextTokens: 2048")
    with load(running) as seen:
        running.ok("apply", "-f", "-", stdin=manifest)
        for _ in range(3):
            pause(0.25)
            kill(running, "stoker.control")
        running.wait(
            "the new spec serves alone",
            lambda: (
                [r["spec"]["template"]["engine"]["contextTokens"] for r in running.replicas()] == [2048]
                and ready(running)
            ),
            within=120,  # the supervisor rests longer after each kill
        )

    assert (seen.broken, seen.refused) == ([], [])
    assert len(running.pids("llama_server")) == 1
    assert_accounted(running, seen)


def test_killing_the_gateway_loses_and_doubles_no_record(running: Machine) -> None:
    engines = running.pids("llama_server")
    with load(running) as seen:
        for wait in (0.5, 0.9):
            pause(wait)
            kill(running, "stoker.gateway")
            began = clock.mono()
            running.wait("the gateway answers again", lambda: answers(running), within=10)
            print(f"the gateway answered again after {clock.mono() - began:.2f} s")
        pause(0.5)
    running.wait(
        "what was in flight is recorded as lost",
        lambda: ["lost"] in outcomes(running).values(),
    )

    assert running.pids("llama_server") == engines
    assert len(seen.answered) > 3
    lost = [r for r, found in outcomes(running).items() if found == ["lost"]]
    assert set(seen.broken) <= set(lost)  # whoever had an answer begun is among the lost, by its id
    assert_accounted(running, seen)


def test_with_two_workers_the_other_one_goes_on(fresh: Machine, tiny_gguf: Path) -> None:
    fresh.up("--model", str(tiny_gguf), "--workers", "2")
    with load(fresh, clients=4) as seen:
        pause(0.5)
        os.kill(fresh.pids("stoker.gateway")[0], signal.SIGKILL)
        pause(1.0)

    assert len(fresh.pids("stoker.gateway")) == 2
    assert seen.refused == [] or len(seen.refused) <= 2  # only what the dead worker had taken and not yet begun
    assert_accounted(fresh, seen)


def test_a_killed_engine_ends_its_answers_visibly_and_comes_back(running: Machine) -> None:
    with load(running) as seen:
        pause(0.5)
        old = kill(running, "llama_server")
        running.wait("another engine serves", lambda: running.pids("llama_server") not in ([], old) and ready(running))
        running.wait("it answers", lambda: answers(running))
    replica = running.replicas()[0]

    assert seen.broken, "nobody was in the middle of an answer"
    assert {seen.why[r] for r in seen.broken} == {"APIError"}  # a frame in the stream, not a broken connection
    assert replica["status"]["restarts"] == 1
    assert "Killed" in running.ok("events", "mr", replica["metadata"]["name"])
    assert all(outcomes(running)[r] in (["truncated"], ["error"]) for r in seen.broken)
    assert_accounted(running, seen)


def test_a_killed_shim_takes_its_engine_along_and_leaves_no_orphan(running: Machine) -> None:
    old = running.pids("llama_server")
    shims = [int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit() and _is_shim(int(e.name), running)]
    for pid in shims:
        os.kill(pid, signal.SIGKILL)
    running.wait("another engine serves", lambda: running.pids("llama_server") not in ([], old) and answers(running))

    assert not set(old) & set(running.pids("llama_server"))


def _is_shim(pid: int, made: Machine) -> bool:
    with contextlib.suppress(OSError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(word.endswith(b"shim.py") for word in line) and any(str(made.root).encode() in word for word in line)
    return False


def test_engines_outlive_a_killed_supervisor_and_are_adopted(running: Machine) -> None:
    engines = running.pids("llama_server")
    with load(running) as seen:
        pause(0.5)
        os.kill(running.supervisor(), signal.SIGKILL)
        running.wait(
            "controller and gateways have gone",
            lambda: not running.pids("stoker.control") and not running.pids("stoker.gateway"),
        )
        assert running.pids("llama_server") == engines
        running.up()
        before = len(seen.answered)
        running.wait("they are answered again", lambda: len(seen.answered) > before + 3)

    assert running.pids("llama_server") == engines
    assert running.replicas()[0]["status"]["restarts"] == 0
    assert seen.broken == []  # who was in the middle of an answer got the rest of it
    assert_accounted(running, seen)


def test_after_a_power_cut_of_processes_the_state_is_as_before(running: Machine) -> None:
    running.ok("key", "create", "ann")
    before = _declared(running)
    with load(running) as seen:
        pause(1.0)
        running.kill_all()
        pause(0.2)
        seen.stop.set()
    for module in ("stoker.control", "stoker.gateway", "llama_server"):
        assert running.pids(module) == []
    running.up()

    assert _declared(running) == before
    assert "KeyCreated" in running.ok("events")
    recorded = outcomes(running)
    assert {r: recorded.get(r) for r in seen.broken if recorded.get(r) not in (["lost"], ["truncated"])} == {}
    assert_accounted(running, seen)
    assert answers(running)


def _declared(made: Machine) -> dict[str, list[dict]]:
    """Everything that a person declared, and every key's hash."""
    return {kind: [r["spec"] for r in made.data("get", kind)["items"]] for kind in ("md", "ms", "uc", "ig", "ca")}


def test_a_stopped_worker_ends_its_streams_first_and_the_next_one_takes_over(running: Machine) -> None:
    (old,) = running.pids("stoker.gateway")
    client = openai.OpenAI(base_url=running.url, api_key=running.key, max_retries=0, timeout=60)
    stream = client.completions.create(
        model="tiny", prompt="The engine", max_tokens=3000, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    os.kill(old, signal.SIGTERM)
    finish = [c.choices[0].finish_reason for c in stream if c.choices]

    assert finish[-1] == "length"
    assert answers(running)
    assert running.pids("stoker.gateway") != [old]


def test_down_ends_the_engines_that_a_killed_supervisor_left(running: Machine) -> None:
    os.kill(running.supervisor(), signal.SIGKILL)
    running.wait("the controller has gone", lambda: not running.pids("stoker.control"))
    assert running.pids("llama_server")
    said = running.ok("down")

    assert "stopped the 1 engine(s)" in said
    assert running.pids("llama_server") == []
    assert running.run("down").returncode == 2  # now there is nothing to stop
