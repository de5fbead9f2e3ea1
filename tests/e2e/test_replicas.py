"""Replicas under load: more, fewer, other; broken ones, and ones that only look well."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.e2e.load import under_load
from tests.e2e.machine import Machine, machine
from tests.e2e.manifests import document, gateway, llama, scripted, service, text

HELLO = [{"role": "user", "content": "Tell."}]
TOOLS = {"preset": "coding-agent", "contextTokens": 512}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("replicas") / "state") as made:
        made.start()
        made.ok("apply", "-f", "-", stdin=text(gateway()))
        yield made


def apply(plane: Machine, *documents: dict) -> None:
    plane.ok("apply", "-f", "-", stdin=text(*documents))


def told(plane: Machine, deployment: str, condition: str) -> tuple[str, str]:
    found = plane.condition("md", deployment, condition)
    return found["status"], found["reason"]


def ready(plane: Machine, deployment: str, generation: int = 1) -> bool:
    found = plane.data("get", "md", deployment)
    at = next(c for c in found["status"]["conditions"] if c["type"] == "Ready")
    return at["status"] == "True" and at["observedGeneration"] >= generation


def wait_ready(plane: Machine, deployment: str, generation: int = 1) -> None:
    plane.wait(f"{deployment} ready", lambda: ready(plane, deployment, generation))


def replica_conditions(plane: Machine, deployment: str) -> dict[str, dict]:
    found = plane.replicas(deployment)
    return {c["type"]: c for c in found[0]["status"].get("conditions", [])} if found else {}


def pid(replica: dict) -> int:
    return int(replica["status"]["process"]["pid"])


def script(plane: Machine, name: str, **told: object) -> Path:
    """Write a behaviour in one step: the engine reads it again when it changes."""
    path = plane.root.parent / f"{name}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.replace(path)
    return path


def delete(plane: Machine, *names: str) -> None:
    for name in names:
        plane.run("delete", "ms", name)
        plane.ok("delete", "md", name)


def test_two_deployments_of_two_and_scaling_without_a_failed_request(plane: Machine, tiny_gguf: Path) -> None:
    apply(plane, llama("many", tiny_gguf), service("many"), scripted("other", replicas=2), service("other"))
    wait_ready(plane, "many")
    wait_ready(plane, "other")
    first = pid(plane.replicas("many")[0])
    with under_load(plane.url, plane.key, "many") as load:
        apply(plane, llama("many", tiny_gguf, replicas=2))
        wait_ready(plane, "many", 2)
        two = plane.replicas("many")
        before = len(load.answers)
        plane.wait("answers from both", lambda: len(load.answers) > before + 20)
        apply(plane, llama("many", tiny_gguf, replicas=1))
        wait_ready(plane, "many", 3)
        after = len(load.answers)
        plane.wait("answers from one", lambda: len(load.answers) > after + 10)

    assert load.failures == []
    assert len(set(load.answers)) == 1  # temperature 0: all of them whole
    assert len({pid(r) for r in two}) == 2
    assert len({r["status"]["process"]["port"] for r in two}) == 2
    assert [pid(r) for r in plane.replicas("many")] == [first]
    assert len(plane.replicas("other")) == 2
    delete(plane, "other", "many")
    assert plane.pids("llama_server") == []


def test_a_changed_spec_under_load_is_new_before_old(plane: Machine, tiny_gguf: Path) -> None:
    apply(plane, llama("change", tiny_gguf), service("change"))
    wait_ready(plane, "change")
    old = plane.replicas("change")[0]["metadata"]["name"]
    seen: list[tuple[bool, list[str]]] = []
    with under_load(plane.url, plane.key, "change") as load:
        apply(plane, llama("change", tiny_gguf, engine={"contextTokens": 768}))

        def over() -> bool:
            done = ready(plane, "change", 2)
            seen.append((done, [r["metadata"]["name"] for r in plane.replicas("change")]))
            return done

        plane.wait("the new one", over)
        after = len(load.answers)
        plane.wait("answers of the new one", lambda: len(load.answers) > after + 10)

    assert load.failures == []
    left = plane.replicas("change")
    assert old not in [r["metadata"]["name"] for r in left]
    assert [r["status"]["inForce"]["contextTokens"] for r in left] == [768]
    assert all(names for _, names in seen)  # never without a replica
    assert all(old not in names for done, names in seen if done)  # success is said when the old one has gone
    delete(plane, "change")


def test_a_broken_change_keeps_the_old_one_and_a_revert_keeps_its_process(plane: Machine, tiny_gguf: Path) -> None:
    good = llama("brave", tiny_gguf, rollout={"progressDeadline": "4s"})
    broken = llama("brave", tiny_gguf, rollout={"progressDeadline": "4s"}, engine={"extraArgs": ["--nonsense"]})
    apply(plane, good, service("brave"))
    wait_ready(plane, "brave")
    before = pid(plane.replicas("brave")[0])
    with under_load(plane.url, plane.key, "brave", clients=2) as load:
        apply(plane, broken)
        plane.wait("given up", lambda: told(plane, "brave", "Progressing") == ("False", "ProgressDeadlineExceeded"))
        why = plane.condition("md", "brave", "Progressing")["message"]
        available = told(plane, "brave", "Available")
        apply(plane, good)
        wait_ready(plane, "brave", 3)

    assert load.failures == []
    assert "--nonsense" in why
    assert available == ("True", "Serving")
    assert [pid(r) for r in plane.replicas("brave")] == [before]
    delete(plane, "brave")


def test_recreate_stops_the_old_one_first(plane: Machine) -> None:
    apply(plane, scripted("exclusive", rollout={"strategy": "Recreate"}), service("exclusive"))
    wait_ready(plane, "exclusive")
    apply(plane, scripted("exclusive", rollout={"strategy": "Recreate"}, engine={"contextTokens": 2048}))
    together = 0

    def over() -> bool:
        nonlocal together
        together = max(together, len(plane.replicas("exclusive")))
        return ready(plane, "exclusive", 2)

    plane.wait("recreated", over)
    assert together == 1
    delete(plane, "exclusive")


def test_deleting_waits_for_the_stream_in_flight(plane: Machine) -> None:
    path = script(plane, "leaving", tokens=60, tokens_per_second=25)
    apply(plane, scripted("leaving", engine={"extraArgs": ["--script", str(path)]}), service("leaving"))
    wait_ready(plane, "leaving")
    client = openai.OpenAI(base_url=plane.url, api_key=plane.key, max_retries=0)
    stream = iter(client.chat.completions.create(model="leaving", messages=HELLO, stream=True, max_tokens=60))
    next(stream)
    plane.ok("delete", "md", "leaving", "--no-wait")
    plane.wait("draining", lambda: "Draining" in plane.ok("events", "mr"))
    pieces = list(stream)
    plane.wait("gone", lambda: plane.run("get", "md", "leaving").returncode == 2)

    assert [c for c in pieces if c.choices][-1].choices[0].finish_reason == "stop"
    assert plane.replicas("leaving") == []
    plane.ok("delete", "ms", "leaving")


def test_an_opaque_command_is_probed_and_metered(plane: Machine) -> None:
    words = ["-m", "stoker.rehearse", "--port", "$(STOKER_PORT)", "--secret-file", "$(STOKER_SECRET_FILE)"]
    runtime = {"kind": "command", "command": [sys.executable, *words, "--model", "its-own-name"]}
    apply(plane, document("ModelDeployment", "opaque", {"runtime": runtime}), service("opaque"))
    wait_ready(plane, "opaque")
    client = openai.OpenAI(base_url=plane.url, api_key=plane.key, max_retries=0)

    assert client.chat.completions.create(model="opaque", messages=HELLO).choices[0].message.content
    rows = plane.data("usage", "--by", "model")["items"]
    assert any("opaque" in str(row) for row in rows)
    delete(plane, "opaque")


def test_a_wrong_parser_is_proven_and_closes_the_service_that_needs_tools(plane: Machine) -> None:
    path = script(plane, "parser", raw_tool_markup=True)
    args = {"extraArgs": ["--script", str(path)]}
    need = service("parser", useCaseRef={"name": "agents"})
    apply(plane, document("UseCase", "agents", TOOLS), scripted("parser", engine=args), need)
    wait_ready(plane, "parser")  # the replica itself is well
    plane.wait("judged", lambda: replica_conditions(plane, "parser")["ParsersVerified"]["status"] == "False")
    verdict = replica_conditions(plane, "parser")["ParsersVerified"]
    plane.wait("closed", lambda: plane.condition("ms", "parser", "RoutingReady")["reason"] == "ParsersUnverified")

    assert "toolParser" in verdict["nextAction"]
    apply(plane, scripted("parser", engine={**args, "toolParser": "hermes"}))
    wait_ready(plane, "parser", 2)
    plane.wait("verified", lambda: replica_conditions(plane, "parser")["ParsersVerified"]["status"] == "True")
    plane.wait("open", lambda: plane.condition("ms", "parser", "RoutingReady")["status"] == "True")
    delete(plane, "parser")


def test_an_engine_that_hangs_behind_a_good_health_page_is_restarted(plane: Machine) -> None:
    path = script(plane, "hang")
    spec = scripted("hang", engine={"extraArgs": ["--script", str(path)]}, probes={"generate": "2s"})
    apply(plane, spec, service("hang"))
    wait_ready(plane, "hang")
    before = pid(plane.replicas("hang")[0])
    script(plane, "hang", hang=True)
    client = openai.OpenAI(base_url=plane.url, api_key=plane.key, max_retries=0, timeout=60)
    ended: list[object] = []

    def ask() -> None:
        try:
            ended.append(client.chat.completions.create(model="hang", messages=HELLO, stream=False))
        except openai.OpenAIError as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    plane.wait("found out", lambda: "NoForwardProgress" in plane.ok("events", "mr"))
    script(plane, "hang")
    plane.wait("another process", lambda: pid(plane.replicas("hang")[0]) != before)
    wait_ready(plane, "hang")
    asking.join(timeout=60)

    assert isinstance(ended[0], openai.APIError)  # cut, and told so
    assert client.chat.completions.create(model="hang", messages=HELLO).choices[0].finish_reason == "stop"
    delete(plane, "hang")


def test_an_engine_that_never_generates_is_not_ready_and_backs_off(plane: Machine) -> None:
    path = script(plane, "mute", hang=True)
    spec = scripted("mute", engine={"extraArgs": ["--script", str(path)]}, probes={"generate": "1s"})
    apply(plane, spec, service("mute"))
    plane.wait("found out", lambda: plane.replicas("mute")[0]["status"]["restarts"] >= 2)
    conditions = replica_conditions(plane, "mute")

    assert conditions["Ready"]["status"] == "False"
    assert plane.condition("ms", "mute", "RoutingReady")["reason"] == "NoReadyEndpoint"
    assert "GeneratesNothing" in plane.ok("events", "mr")
    delete(plane, "mute")


def test_a_crash_loop_backs_off_and_the_dead_attempt_can_be_read(plane: Machine) -> None:
    path = script(plane, "crash", crash_after_tokens=0)
    apply(plane, scripted("crash", engine={"extraArgs": ["--script", str(path)]}), service("crash"))
    plane.wait("two deaths", lambda: plane.replicas("crash")[0]["status"]["restarts"] >= 2)
    memory = plane.replicas("crash")[0]["status"]["memory"]
    plane.wait("a wait is told", lambda: "starts in" in replica_conditions(plane, "crash")["Started"]["message"])

    assert memory["failures"] >= 2
    assert "scripted crash" in plane.ok("logs", "crash", "--previous")
    script(plane, "crash")
    wait_ready(plane, "crash")
    os.kill(pid(plane.replicas("crash")[0]), signal.SIGKILL)
    plane.wait("killed", lambda: "Killed" in plane.ok("events", "mr"))
    wait_ready(plane, "crash")
    delete(plane, "crash")
