"""Fetching from a hub: whole and checked, or a clear reason and nothing half done under the final name."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drivers.standin_hub import COMMIT, Hub

from stoker.base.errors import Driver, Invalid
from stoker.drivers import downloads, hub
from stoker.drivers.downloads import Download, Progress

pytestmark = pytest.mark.e2e
WEIGHTS = os.urandom(300_000)
FILES = {
    "model.safetensors": WEIGHTS,
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "README.md": b"---\nlicense: apache-2.0\n---\n",
    "pytorch_model.bin": b"pickle",
    "modeling.py": b"code",
    "onnx/model.onnx": b"other",
}


@pytest.fixture
def server() -> Iterator[Hub]:
    made = Hub(FILES)
    yield made
    made.close()


def fetch(server: Hub, folder: Path, **changes: object) -> Path:
    given = {"folder": folder, "repo": "owner/model", "endpoint": server.endpoint} | changes
    return asyncio.run(downloads.fetch(Download(**given), progress=Progress()))  # type: ignore[arg-type]


def left(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    )


def test_a_repository_is_fetched_whole_and_checked(server: Hub, tmp_path: Path) -> None:
    path = fetch(server, tmp_path, revision="v1")

    assert path == tmp_path / "hub/owner/model" / COMMIT
    assert left(path) == [".stoker.json", "README.md", "config.json", "model.safetensors", "tokenizer.json"]
    marker = json.loads((path / ".stoker.json").read_text())
    assert (marker["commit"], marker["revision"], marker["licence"]) == (COMMIT, "v1", "apache-2.0")
    assert marker["sha256"]["model.safetensors"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert downloads.find(tmp_path, "owner/model", COMMIT, "") == path
    assert downloads.find(tmp_path, "owner/model", "v1", "") == path
    fetch(server, tmp_path)
    assert len(server.fetched("model.safetensors")) == 1


def test_a_cut_download_goes_on_where_it_stopped(server: Hub, tmp_path: Path) -> None:
    server.cut_after, server.cuts = 100_000, 2

    path = fetch(server, tmp_path)

    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert server.fetched("model.safetensors") == ["", "bytes=100000-", "bytes=200000-"]


def test_a_killed_download_is_resumed_by_the_next(server: Hub, tmp_path: Path) -> None:
    part = tmp_path / "hub/owner/model" / f"{COMMIT}.part"
    part.mkdir(parents=True)
    (part / "model.safetensors").write_bytes(WEIGHTS[:123_456])

    path = fetch(server, tmp_path)

    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert server.fetched("model.safetensors") == ["bytes=123456-"]
    assert not part.exists()


def test_a_server_without_ranges_begins_anew(server: Hub, tmp_path: Path) -> None:
    server.cut_after, server.cuts, server.ranges = 100_000, 1, False

    assert (fetch(server, tmp_path) / "model.safetensors").read_bytes() == WEIGHTS


def test_a_wrong_digest_removes_the_file(server: Hub, tmp_path: Path) -> None:
    server.lie["model.safetensors"] = "0" * 64

    with pytest.raises(Driver, match="its sha256 is"):
        fetch(server, tmp_path)

    assert not any("model.safetensors" in name for name in left(tmp_path))
    with pytest.raises(Driver, match="the hub says sha256"):
        fetch(server, tmp_path, sha256=(("model.safetensors", "1" * 64),))
    assert downloads.find(tmp_path, "owner/model", "", "") is None


@pytest.mark.parametrize(
    ("refuse", "changes", "words"),
    [
        ({"api": 429}, {}, r"asked too often \(429\); it asks to wait 7 s"),
        ({"model.safetensors": 429}, {}, r"model.safetensors: the hub is asked too often \(429\)"),
        ({"model.safetensors": 403}, {}, r"may not read this \(403\)"),
        ({"config.json": 404}, {}, r"does not have it \(404\)"),
        ({}, {"repo": "owner/absent"}, "no repository 'owner/absent'"),
        ({}, {"revision": "v9"}, "no revision 'v9'"),
        ({}, {"endpoint": "http://127.0.0.1:9"}, "does not answer"),
        ({}, {"include": ("*.bin",)}, "pickles and code are never fetched"),
    ],
)
def test_what_the_hub_refuses_is_told_and_nothing_has_the_final_name(
    server: Hub, tmp_path: Path, refuse: dict[str, int], changes: dict[str, object], words: str
) -> None:
    server.refuse = refuse

    with pytest.raises(Driver, match=words):
        fetch(server, tmp_path, **changes)

    assert not list(tmp_path.rglob(downloads.MARKER))
    assert not (tmp_path / "hub/owner/model" / COMMIT).exists()


def test_a_gated_repository_wants_a_token(server: Hub, tmp_path: Path) -> None:
    server.token = "hf_secret"
    with pytest.raises(Driver, match="is gated"):
        fetch(server, tmp_path)

    (tmp_path / "token").write_text("hf_secret\n")
    path = fetch(server, tmp_path, token_file=str(tmp_path / "token"))

    assert (path / "model.safetensors").exists()
    assert not any(b"hf_secret" in file.read_bytes() for file in path.rglob("*") if file.is_file())


def test_a_full_disk_leaves_nothing(server: Hub, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", tmp_path], check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        with pytest.raises(Driver, match=r"the disk is full: .* are needed and .* are free"):
            fetch(server, tmp_path)
        assert left(tmp_path) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_disk_that_fills_meanwhile_leaves_nothing(server: Hub, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", tmp_path], check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        url = f"{server.endpoint}/owner/model/resolve/{COMMIT}/model.safetensors"  # a URL tells no size beforehand
        with pytest.raises(Driver, match="the disk is full"):
            fetch(server, tmp_path, repo="", url=url)
        assert left(tmp_path) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_many_who_wait_fetch_once(server: Hub, tmp_path: Path) -> None:
    async def all_of_them() -> set[Path]:
        job = Download(folder=tmp_path, repo="owner/model", endpoint=server.endpoint)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(downloads.fetch(job, progress=Progress())) for _ in range(3)]
        return {task.result() for task in tasks}

    assert asyncio.run(all_of_them()) == {tmp_path / "hub/owner/model" / COMMIT}
    assert len(server.fetched("model.safetensors")) == 1


def test_a_url_is_fetched_with_its_digest(server: Hub, tmp_path: Path) -> None:
    url = f"{server.endpoint}/owner/model/resolve/{COMMIT}/model.safetensors?download=true"
    good = hashlib.sha256(WEIGHTS).hexdigest()

    with pytest.raises(Driver, match="its sha256 is"):
        fetch(server, tmp_path, repo="", url=url, sha256=(("", "0" * 64),))
    path = fetch(server, tmp_path, repo="", url=url, sha256=(("", good),))

    assert (path / "model.safetensors").read_bytes() == WEIGHTS
    assert downloads.find(tmp_path, "", "", url) == path


def test_progress_is_told_in_bytes(server: Hub, tmp_path: Path) -> None:
    job = {"folder": str(tmp_path), "repo": "owner/model", "endpoint": server.endpoint}
    argv = [sys.executable, "-m", "stoker.drivers.hub"]

    done = subprocess.run(argv, input=json.dumps(job), capture_output=True, text=True, check=True)

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["total"] == sum(
        len(FILES[name]) for name in ("model.safetensors", "config.json", "tokenizer.json", "README.md")
    )
    assert list(lines[-1]) == ["path"]
    assert shutil.rmtree(lines[-1]["path"]) is None


@pytest.mark.parametrize(
    ("names", "include", "wanted"),
    [
        (["a.gguf"], (), ["a.gguf"]),
        (["m-Q8_0.gguf", "m-q4_k_m.gguf", "mmproj-m.gguf"], (), ["m-q4_k_m.gguf"]),
        (["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf", "LICENSE"], (), None),
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf"], ("*Q8*",), ["m-Q8_0.gguf"]),
        (["x.safetensors", "config.json", "sub/y.safetensors", "x.bin", "x.py"], (), ["x.safetensors", "config.json"]),
    ],
)
def test_choose(names: list[str], include: tuple[str, ...], wanted: list[str] | None) -> None:
    assert hub.choose(names, include) == (wanted if wanted is not None else names)


@pytest.mark.parametrize("names", [["a-Q8_0.gguf", "a-Q2_K.gguf"], ["pytorch_model.bin", "config.json"], []])
def test_choose_refuses_to_guess(names: list[str]) -> None:
    with pytest.raises(Invalid):
        hub.choose(names, ())
