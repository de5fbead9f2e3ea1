"""Where models come from: a hub, a URL, a folder; fetched once, whole or not at all, and told in words."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from tests.drivers.standin_hub import COMMIT, Hub
from tests.e2e.machine import Machine, machine
from tests.e2e.manifests import document, gateway, service, text
from tests.models import tiny

REPO = "owner/model"
ENGINE = {"name": "llama.cpp", "contextTokens": 512, "maxSequences": 2}


@pytest.fixture
def hub(tiny_gguf: Path) -> Iterator[Hub]:
    card = b"---\nlicense: apache-2.0\n---\n"
    made = Hub({"tiny-Q4_K_M.gguf": tiny_gguf.read_bytes(), "tiny-Q8_0.gguf": b"GGUF other", "README.md": card})
    yield made
    made.close()


@pytest.fixture
def far(fresh: Machine, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose hub is the stand-in."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return fresh


def say(machine: Machine, model: str) -> str:
    client = openai.OpenAI(base_url=machine.url, api_key=machine.key, max_retries=0)
    messages = [{"role": "user", "content": "Tell."}]
    return (
        client.chat.completions.create(model=model, messages=messages, max_tokens=8, temperature=0)
        .choices[0]
        .message.content
        or ""
    )


def deployment(name: str, *, cache: str = "", **model: object) -> dict[str, object]:
    source = {"modelCacheRef": {"name": cache}} if cache else {"model": model}
    return document("ModelDeployment", name, {**source, "engine": ENGINE})


def cached_files(machine: Machine) -> list[str]:
    folder = machine.root / "models"
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != ".lock")


def why(machine: Machine, deployment: str, condition: str) -> dict:
    replica = machine.replicas(deployment)[0]
    return next(c for c in replica["status"]["conditions"] if c["type"] == condition)


def test_up_serves_a_pinned_repository_through_cuts(far: Machine, hub: Hub) -> None:
    hub.cut_after, hub.cuts = 2_000_000, 2
    said = far.up("--model", f"{REPO}@{COMMIT}")

    assert "  models    model" in said
    assert say(far, "model")
    assert hub.fetched("tiny-Q4_K_M.gguf") == ["", "bytes=2000000-", "bytes=4000000-"]
    assert hub.fetched("tiny-Q8_0.gguf") == []
    listed = far.ok("models")
    assert f"{REPO}@{COMMIT[:12]}" in listed
    assert "apache-2.0" in listed


@pytest.mark.parametrize(
    ("refuse", "model", "words"),
    [
        pytest.param({"api": 401}, REPO, ("CacheReady", "token"), id="401"),
        pytest.param({}, "owner/absent", ("CacheReady", "no repository 'owner/absent'"), id="404"),
        pytest.param({}, f"{REPO}@v9", ("CacheReady", "no revision 'v9'"), id="revision"),
    ],
)
def test_what_the_hub_refuses_ends_up_with_the_reason(
    far: Machine, hub: Hub, refuse: dict[str, int], model: str, words: tuple[str, ...]
) -> None:
    hub.refuse = refuse
    listen = ["--listen", f"127.0.0.1:{far.port}", "--admin", f"127.0.0.1:{far.admin}"]
    done = far.run("up", "-d", *listen, "--model", model)

    assert done.returncode == 1
    assert all(word in done.stderr for word in words)
    assert "next: " in done.stderr
    assert cached_files(far) == []


def test_a_token_opens_a_gated_repository_and_stays_out_of_sight(
    far: Machine, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_of_ann"
    monkeypatch.setenv("HF_TOKEN", hub.token)
    far.up("--model", REPO)

    assert say(far, "model")
    holders = [p for p in far.root.rglob("*") if p.is_file() and hub.token.encode() in p.read_bytes()]
    assert holders == [far.root / "keys" / "hub.token"]
    assert holders[0].stat().st_mode & 0o077 == 0
    arguments = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert hub.token not in arguments


def test_a_busy_hub_is_told_and_asked_again_and_many_who_wait_fetch_once(far: Machine, hub: Hub) -> None:
    hub.refuse = {"api": 429}
    far.start()
    both = [deployment(n, repo=REPO, revision=COMMIT) for n in ("one", "two")]
    far.ok("apply", "-f", "-", stdin=text(gateway(), *both, service("one"), service("two")))
    far.wait("told", lambda: why(far, "one", "CacheReady")["reason"] == "HubBusy")

    assert "429" in why(far, "one", "CacheReady")["message"]
    assert "7 s" in why(far, "one", "CacheReady")["message"]
    assert cached_files(far) == []
    hub.refuse = {}
    for name in ("one", "two"):
        far.wait(f"{name} ready", lambda n=name: far.condition("md", n, "Ready")["status"] == "True", within=90)
    assert say(far, "one") == say(far, "two")
    assert len(hub.fetched("tiny-Q4_K_M.gguf")) == 1


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    with machine(tmp_path / "state") as made:
        models = made.root / "models"
        models.mkdir(parents=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", models], check=False).returncode:
            pytest.skip("mounting a tmpfs needs root")
        try:
            made.start()
            made.ok("apply", "-f", "-", stdin=text(deployment("big", repo=REPO)))
            made.wait("told", lambda: why(made, "big", "CacheReady")["reason"] == "DiskFull")

            assert "are needed and" in why(made, "big", "CacheReady")["message"]
            assert "free space" in why(made, "big", "CacheReady")["nextAction"]
            assert cached_files(made) == []
        finally:
            made.down()
            subprocess.run(["umount", "-l", models], check=True)


def test_caches_of_every_source(far: Machine, hub: Hub, tiny_gguf: Path, tmp_path: Path) -> None:
    far.start()
    url = f"{hub.endpoint}/{REPO}/resolve/{COMMIT}/tiny-Q4_K_M.gguf"
    caches = [
        document("ModelCache", "folder", {"source": "Directory", "directory": {"path": str(tiny_gguf.parent)}}),
        document("ModelCache", "web", {"source": "HTTP", "http": {"url": url}}),
        document(
            "ModelCache", "wrong", {"source": "HTTP", "http": {"url": url + "?x"}, "verify": {"sha256": "0" * 64}}
        ),
        document(
            "ModelCache",
            "repo",
            {"source": "HuggingFace", "huggingFace": {"repo": REPO, "revision": COMMIT, "files": ["*Q4_K_M*"]}},
        ),
    ]
    dangling = far.run("apply", "-f", "-", stdin=text(deployment("lost", cache="fodler"), *caches))
    assert dangling.returncode == 2
    assert "folder" in dangling.stderr

    names = ("folder", "web", "repo")
    users = [deployment(f"of-{name}", cache=name) for name in names]
    far.ok("apply", "-f", "-", stdin=text(gateway(), *caches, *users, *(service(f"of-{name}") for name in names)))
    for name in names:
        far.wait(name, lambda n=name: far.condition("mc", n, "Ready")["status"] == "True")
        far.wait(f"of-{name}", lambda n=name: far.condition("md", f"of-{n}", "Ready")["status"] == "True")
        assert say(far, f"of-{name}")
    far.wait("refused", lambda: far.condition("mc", "wrong", "ArtifactReady")["reason"] == "ChecksumMismatch")


def test_up_asks_for_a_licence_and_takes_the_answer(
    fresh: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    model = tiny.make(tmp_path, name="owned", license_name="llama3.1").gguf
    listen = ["--listen", f"127.0.0.1:{fresh.port}", "--admin", f"127.0.0.1:{fresh.admin}"]
    refused = fresh.run("up", "-d", *listen, "--model", str(model))
    fresh.up("--model", str(model), "--accept-licence")

    assert refused.returncode == 1
    assert "restricted" in refused.stderr
    assert "--accept-licence" in refused.stderr
    assert say(fresh, "owned")
    event = next(line for line in fresh.ok("events").splitlines() if "LicenceAccepted" in line)
    assert event.rstrip().endswith(" ann")
