"""What a platform engineer does with files: apply, compare, read back, change her mind, delete."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import yaml
from tests.e2e.machine import Machine, free_port, machine
from tests.e2e.manifests import document, gateway, llama, scripted, service, text
from tests.models import tiny

from stoker.base import clock
from stoker.drivers.request import Call, fetch

HELLO = [{"role": "user", "content": "Tell."}]
PLANE = Path(__file__).parents[1] / "data" / "modelplane-manifests"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One machine with a scripted engine behind ``talk``; tests use names of their own beside it."""
    with machine(tmp_path_factory.mktemp("declared") / "state") as made:
        made.start()
        made.ok("apply", "-f", "-", stdin=text(gateway(), scripted("talk"), service("talk")))
        made.wait("talk serves", lambda: made.condition("ms", "talk", "RoutingReady")["status"] == "True")
        yield made


def client(machine: Machine, key: str = "") -> openai.OpenAI:
    return openai.OpenAI(base_url=machine.url, api_key=key or machine.key, max_retries=0)


def say(machine: Machine, model: str, *, key: str = "", **more: object) -> str:
    asked: dict = {"model": model, "messages": HELLO, "max_tokens": 20, **more}
    return client(machine, key).chat.completions.create(**asked).choices[0].message.content or ""


def serves(machine: Machine, model: str) -> bool:
    try:
        return bool(say(machine, model))
    except openai.APIStatusError:
        return False


def reason(machine: Machine, deployment: str, condition: str) -> str:
    """Why a rung of the only replica of a deployment does not hold."""
    found = machine.replicas(deployment)
    listed = found[0]["status"]["conditions"] if found else []
    return next((c["reason"] for c in listed if c["type"] == condition and c["status"] == "False"), "")


def action(machine: Machine, deployment: str, condition: str) -> str:
    listed = machine.replicas(deployment)[0]["status"]["conditions"]
    return next(c.get("nextAction", "") for c in listed if c["type"] == condition)


def test_apply_diff_and_apply_again(plane: Machine, tmp_path: Path) -> None:
    file = tmp_path / "usecase.yaml"
    file.write_text(text(document("UseCase", "work", {"preset": "chat"})))
    first, again = plane.ok("apply", "-f", str(file)), plane.ok("apply", "-f", str(file))
    same = plane.run("diff", "-f", str(file))
    file.write_text(text(document("UseCase", "work", {"preset": "batch"})))
    changed = plane.run("diff", "-f", str(file))

    assert first.strip() == "usecase/work created"
    assert again.strip() == "usecase/work unchanged"
    assert (same.returncode, same.stdout) == (0, "")
    assert changed.returncode == 1
    assert {"-  preset: chat", "+  preset: batch"} <= set(changed.stdout.splitlines())
    assert plane.data("get", "usecase", "work")["spec"] == {"preset": "chat"}  # diff changes nothing


def test_a_folder_and_standard_input_are_applied(plane: Machine, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "one.yaml").write_text(text(document("UseCase", "one", {"preset": "chat"})))
    (tmp_path / "deep" / "two.json").write_text(json.dumps(document("UseCase", "two", {"preset": "chat"})))

    assert "usecase/one created\n" in plane.ok("apply", "-f", str(tmp_path)) + "\n"
    assert plane.data("get", "usecase", "two")["metadata"]["name"] == "two"
    assert "three" in plane.ok("apply", "-f", "-", stdin=text(document("UseCase", "three", {"preset": "chat"})))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"preset": "chat", "contextTokns": 5}, ("contextTokns", "contextTokens"), id="unknown field"),
        pytest.param({"preset": "chats"}, ("preset", "chat"), id="unknown value"),
        pytest.param(
            {"preset": "chat", "bar": {"visibleTtftP90Seconds": "fast"}}, ("visibleTtftP90Seconds",), id="not a number"
        ),
    ],
)
def test_one_wrong_document_and_nothing_is_applied(
    plane: Machine, tmp_path: Path, spec: dict[str, object], words: tuple[str, ...]
) -> None:
    file = tmp_path / "set.yaml"
    file.write_text(text(document("UseCase", "good", {"preset": "chat"}), document("UseCase", "wrong", spec)))
    done = plane.run("apply", "-f", str(file))

    assert done.returncode == 2
    assert f"{file}:" in done.stderr
    assert all(word in done.stderr for word in words)
    assert int(done.stderr.partition(f"{file}:")[2].partition(":")[0]) > len(
        text(document("UseCase", "good", {"preset": "chat"})).splitlines()
    )
    assert plane.run("get", "usecase", "good").returncode == 2


def test_references_and_kinds_that_do_not_exist(plane: Machine) -> None:
    dangling = plane.run(
        "apply",
        "-f",
        "-",
        stdin=text(service("lost", useCaseRef={"name": "wrok"}), document("UseCase", "wrok2", {"preset": "chat"})),
    )
    kind = plane.run("apply", "-f", "-", stdin=text(document("ModelDeploymnt", "x", {})))
    composed = plane.run(
        "apply",
        "-f",
        "-",
        stdin=text(
            document("ModelReplica", "x", {"deployment": "talk", "index": 0, "templateHash": "x", "template": {}})
        ),
    )
    foreign = plane.run(
        "apply", "-f", "-", stdin="apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n"
    )

    assert (dangling.returncode, "wrok2" in dangling.stderr) == (2, True)
    assert (kind.returncode, "ModelDeployment" in kind.stderr) == (2, True)
    assert composed.returncode == 2
    assert (foreign.returncode, "apps/v1" in foreign.stderr) == (2, True)
    assert plane.run("get", "ms", "lost").returncode == 2


def test_get_in_every_form(plane: Machine) -> None:
    assert "talk" in plane.ok("get", "modeldeployments")
    assert "exposed=true" in plane.ok("get", "ms", "-o", "wide")
    assert "default/talk" in plane.ok("get", "ms", "-A")
    assert "talk" not in plane.ok("get", "ms", "-l", "exposed=no")
    assert plane.data("get", "ms")["kind"] == "List"
    assert plane.data("get", "md", "talk")["status"]["replicas"] == {"total": 1}
    assert plane.run("get", "md", "tolk").returncode == 2
    assert "talk" in plane.run("get", "md", "tolk").stderr
    assert "modeldeployment" in plane.run("get", "modeldeploymnt").stderr


@pytest.mark.parametrize("kind", ["md", "ms", "ig", "caller", "ic"])
def test_what_get_prints_can_be_applied_again(plane: Machine, kind: str) -> None:
    again = (
        plane.ok("apply", "-f", "-", stdin=plane.ok("get", kind, "-o", "yaml"))
        if plane.data("get", kind)["items"]
        else ""
    )

    assert all(line.endswith("unchanged") for line in again.splitlines())


def test_describe_tells_conditions_actions_and_events(plane: Machine) -> None:
    told = plane.ok("describe", "md", "talk")

    assert "ReplicaCreated" in told
    assert "AllReplicasReady" in told
    assert "useCaseRef" in plane.ok("describe", "ms", "talk")  # the next action for bars that nobody wrote


def test_schema_is_json_schema(plane: Machine) -> None:
    found = json.loads(plane.ok("schema", "ModelDeployment"))

    assert found["$schema"].startswith("https://json-schema.org/")
    assert "ModelDeployment" in json.dumps(found)
    assert plane.run("schema", "ModelDeploymnt").returncode == 2


def test_bars_written(plane: Machine) -> None:
    assert plane.condition("ms", "talk", "BarsWritten")["status"] == "False"
    plane.ok(
        "apply",
        "-f",
        "-",
        stdin=text(document("UseCase", "chatty", {"preset": "chat"}), service("talk", useCaseRef={"name": "chatty"})),
    )
    plane.wait("bars", lambda: plane.condition("ms", "talk", "BarsWritten")["status"] == "True")
    plane.ok("apply", "-f", "-", stdin=text(service("talk")))
    plane.wait("no bars", lambda: plane.condition("ms", "talk", "BarsWritten")["status"] == "False")


def test_aliases_and_an_empty_selector(plane: Machine) -> None:
    plane.ok("apply", "-f", "-", stdin=text(service("talk", aliases=["gpt-4o"])))
    plane.wait("alias", lambda: serves(plane, "gpt-4o"))
    told = plane.run("apply", "-f", "-", stdin=text(document("InferenceGateway", "default", {})))
    plane.wait("nothing is exposed", lambda: client(plane).models.list().data == [])
    with pytest.raises(openai.NotFoundError):
        say(plane, "talk")

    assert "exposes no service" in told.stderr
    assert plane.condition("ig", "default", "Exposes")["reason"] == "SelectorEmpty"
    plane.ok("apply", "-f", "-", stdin=text(gateway(), service("talk")))
    plane.wait("talk again", lambda: serves(plane, "talk"))


def test_a_caller_has_limits_and_only_its_services(plane: Machine) -> None:
    key = plane.ok("key", "create", "narrow", "--service", "elsewhere").strip()
    with pytest.raises((openai.PermissionDeniedError, openai.NotFoundError)):
        say(plane, "talk", key=key)
    assert client(plane, key).models.list().data == []

    spec = {"allow": {"services": ["default/talk"]}, "limits": {"requestsPerMinute": 2}}
    plane.ok("apply", "-f", "-", stdin=text(document("Caller", "narrow", spec)))
    plane.wait("the new rule", lambda: [m.id for m in client(plane, key).models.list().data] != [])
    with pytest.raises(openai.RateLimitError) as refused:
        [say(plane, "talk", key=key) for _ in range(3)]
    assert 0 < int(refused.value.response.headers["retry-after"]) <= 60


def test_a_revoked_key_is_refused_at_once_and_its_stream_goes_on(plane: Machine) -> None:
    slow = scripted("slow", engine={"extraArgs": ["--script", str(plane.root.parent / "slow.json")]})
    (plane.root.parent / "slow.json").write_text(json.dumps({"tokens": 60, "tokens_per_second": 40}))
    plane.ok("apply", "-f", "-", stdin=text(slow, service("slow")))
    plane.wait("slow serves", lambda: plane.condition("ms", "slow", "RoutingReady")["status"] == "True")
    key = plane.ok("key", "create", "leaver").strip()
    stream = iter(client(plane, key).chat.completions.create(model="slow", messages=HELLO, max_tokens=60, stream=True))
    next(stream)
    rows = [line.split() for line in plane.ok("key", "list").splitlines()]
    plane.ok("key", "revoke", next(row[0] for row in rows if "leaver" in row))
    with pytest.raises(openai.AuthenticationError):
        say(plane, "talk", key=key)
    rest = list(stream)

    assert rest[-1].choices[0].finish_reason in ("stop", "length")
    plane.ok("delete", "ms", "slow")
    plane.ok("delete", "md", "slow")
    assert plane.replicas("slow") == []


def test_an_expired_key_is_refused(plane: Machine) -> None:
    key = plane.ok("key", "create", "guest", "--expires", "2s").strip()
    assert say(plane, "talk", key=key)
    clock.sleep(2.1)
    with pytest.raises(openai.AuthenticationError, match="expired"):
        say(plane, "talk", key=key)


def test_an_engine_of_somebody_else_is_an_endpoint(plane: Machine, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("their-key\n")
    port = free_port()
    words = ["--port", str(port), "--secret-file", str(tmp_path / "secret"), "--model", "large"]
    with subprocess.Popen([sys.executable, "-m", "stoker.rehearse", *words], stderr=subprocess.DEVNULL) as provider:
        try:
            spec = {
                "origin": f"http://127.0.0.1:{port}",
                "model": "large",
                "credential": {"file": str(tmp_path / "secret")},
            }
            away = service("away")
            away["spec"] = {"endpoints": [{"selector": {"matchLabels": {"provider": "them"}}}]}
            plane.ok("apply", "-f", "-", stdin=text(document("ModelEndpoint", "them", spec, provider="them"), away))
            plane.wait("away serves", lambda: serves(plane, "away"))
            assert fetch(Call(url=f"http://127.0.0.1:{port}/v1/models")).status == 401
        finally:
            provider.kill()
    with pytest.raises(openai.APIStatusError):
        say(plane, "away")
    plane.ok("delete", "ms", "away")
    plane.ok("delete", "me", "them")


def test_modelplane_manifests_on_a_running_machine(plane: Machine) -> None:
    mine = scripted("gpu", resources={"devices": [{"name": "gpu", "count": 1}]})
    plane.ok("apply", "-f", "-", stdin=text(mine))
    plane.wait("no device", lambda: reason(plane, "gpu", "Scheduled") == "InsufficientCapacity")
    assert "1 accelerator" in plane.ok("describe", "mr", plane.replicas("gpu")[0]["metadata"]["name"])
    plane.ok("delete", "md", "gpu")

    theirs = PLANE / "examples" / "qwen3-8b"
    assert "modeldeployment/qwen3-8b created" in plane.ok("apply", "-f", str(theirs))

    def conditions() -> dict[str, dict]:
        listed = plane.data("-n", "ml-team", "get", "mr")["items"]
        return {c["type"]: c for c in listed[0]["status"]["conditions"]}

    plane.wait("refused", lambda: conditions()["Preflighted"]["reason"] == "NoContainerDriver")
    assert conditions()["Scheduled"]["reason"] == "InsufficientCapacity"
    assert "this machine has none" in conditions()["Scheduled"]["message"]
    plane.ok("delete", "-f", str(theirs))
    assert plane.run("-n", "ml-team", "get", "md", "qwen3-8b").returncode == 2

    foreign = plane.run("apply", "-f", str(PLANE))
    assert foreign.returncode == 2
    assert "ClusterProviderConfig" in foreign.stderr
    assert "foreign kind" in foreign.stderr


def test_restricted_licence_waits_for_a_person(plane: Machine, tmp_path: Path) -> None:
    model = tiny.make(tmp_path, license_name="llama3.1").gguf
    manifest = text(llama("licensed", model))
    plane.ok("apply", "-f", "-", stdin=manifest)
    plane.wait("refused", lambda: reason(plane, "licensed", "Preflighted") == "LicenceNotAccepted")
    assert "licence" in action(plane, "licensed", "Preflighted")
    assert plane.pids("llama_server") == []

    plane.ok("apply", "-f", "-", "--accept-licence", str(model), stdin=manifest)
    plane.wait("up", lambda: plane.condition("md", "licensed", "Ready")["status"] == "True")
    accepted = [line for line in plane.ok("events", "md", "licensed").splitlines() if "LicenceAccepted" in line]
    assert len(accepted) == 1
    assert str(model) in accepted[0]
    plane.ok("delete", "md", "licensed")


def test_what_must_not_or_cannot_run_is_a_condition_with_the_next_action(
    plane: Machine, tmp_path: Path, tiny_gguf: Path
) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    command = [sys.executable, "-m", "stoker.rehearse", "--port", str(taken.getsockname()[1])]
    clash = document("ModelDeployment", "clash", {"runtime": {"kind": "command", "command": command}})
    nowhere = document("ModelDeployment", "nowhere", {"runtime": {"kind": "command", "command": ["/no/such/program"]}})
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (pickled / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    image = document(
        "ModelDeployment",
        "image",
        {
            "model": {"path": str(tiny_gguf)},
            "runtime": {"kind": "container", "image": "vllm/vllm-openai:v0.33.0"},
            "engine": {"name": "vllm"},
        },
    )
    cases = {
        "pickled": (llama("pickled", pickled), "Preflighted", "ModelRefused"),
        "long": (llama("long", tiny_gguf, engine={"contextTokens": 8192}), "Preflighted", "ContextTooLong"),
        "image": (image, "Preflighted", "NoContainerDriver"),
        "absent": (llama("absent", tmp_path / "absent.gguf"), "CacheReady", "FileNotFound"),
        "clash": (clash, "Started", "PortInUse"),
        "nowhere": (nowhere, "Started", "StartFailed"),
        "flag": (llama("flag", tiny_gguf, engine={"extraArgs": ["--no-such-flag"]}), "Started", "BadFlag"),
    }
    plane.ok("apply", "-f", "-", stdin=text(*(manifest for manifest, _, _ in cases.values())))
    for name, (_, condition, why) in cases.items():
        plane.wait(  # both at one look: the next attempt begins with neither
            f"{name}: {why}, and what to do",
            lambda n=name, c=condition, w=why: reason(plane, n, c) == w and action(plane, n, c) != "",
        )
    for name in cases:
        plane.ok("delete", "md", name, "--no-wait")
    taken.close()


def test_extra_args_may_not_contradict_the_block(plane: Machine, tiny_gguf: Path) -> None:
    manifest = text(llama("contrary", tiny_gguf, engine={"extraArgs": ["--ctx-size", "99"]}))
    plane.ok("apply", "-f", "-", stdin=manifest)
    plane.wait("refused", lambda: reason(plane, "contrary", "Preflighted") == "ModelRefused")
    assert "contextTokens" in plane.ok("describe", "mr", plane.replicas("contrary")[0]["metadata"]["name"])
    plane.ok("delete", "md", "contrary")


def test_backup_and_restore(tmp_path: Path) -> None:
    with machine(tmp_path / "state") as made:
        made.start()
        made.ok("apply", "-f", "-", stdin=text(document("UseCase", "kept", {"preset": "chat"})))
        made.ok("backup", str(tmp_path / "backup.db"))
        assert made.run("backup", str(tmp_path / "backup.db")).returncode == 2
        made.ok("apply", "-f", "-", stdin=text(document("UseCase", "later", {"preset": "chat"})))
        assert made.run("restore", str(tmp_path / "backup.db")).returncode == 1  # not while it runs
        made.down()
        made.ok("restore", str(tmp_path / "backup.db"))
        made.start()

        assert [r["metadata"]["name"] for r in made.data("get", "usecase")["items"]] == ["kept"]
        assert client(made).models.list().data == []  # the key of before still holds


def test_events_are_told_oldest_first_and_by_object(plane: Machine) -> None:
    told = plane.ok("events", "md", "talk").splitlines()

    assert any("ReplicaCreated" in line for line in told)
    assert all("ModelDeployment/talk" in line for line in told[1:])


def test_get_yaml_is_yaml(plane: Machine) -> None:
    found = yaml.safe_load(plane.ok("get", "md", "talk", "-o", "yaml"))

    assert (found["apiVersion"], found["kind"]) == ("stoker.dev/v1alpha1", "ModelDeployment")
