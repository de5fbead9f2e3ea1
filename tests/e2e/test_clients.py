"""``stoker connect`` and ``stoker conformance`` as a person uses them, against a Stoker that runs."""

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.machine import Machine, machine
from tests.e2e.manifests import gateway, scripted, service, text


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One model that has a second name for small things."""
    with machine(tmp_path_factory.mktemp("clients") / "state") as made:
        made.start()
        deployment = scripted("coder", engine={"contextTokens": 131072})
        made.ok("apply", "-f", "-", stdin=text(gateway(), deployment, service("coder", aliases=["small"])))
        made.wait("the model answers", lambda: "yes" in made.ok("status"))
        yield made


def test_each_client_is_told_what_is_in_force(plane: Machine) -> None:
    origin = plane.url.removesuffix("/v1")
    claude = plane.ok("connect", "claude-code", "--auxiliary", "small")
    assert f'"ANTHROPIC_BASE_URL": "{origin}"' in claude
    assert '"ANTHROPIC_DEFAULT_HAIKU_MODEL": "small"' in claude
    assert '"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "131072"' in claude
    assert "printenv STOKER_API_KEY" in claude
    assert f'base_url = "{origin}/v1"' in plane.ok("connect", "codex")
    assert '"context": 131072' in plane.ok("connect", "opencode")
    assert "export ANTHROPIC_API_KEY=YOUR_KEY" in plane.ok("connect", "anthropic", "--model", "coder")


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode", "openai", "anthropic"])
def test_check_runs_a_turn(plane: Machine, client: str) -> None:
    done = plane.run("connect", client, "--auxiliary", "small", "--check")

    assert done.returncode == 0, done.stdout + done.stderr
    assert ".tools" in done.stdout
    assert "0 fail" in done.stdout


def test_written_files_keep_what_was_there(plane: Machine, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('# mine\nmodel = "other"\n\n[mcp_servers.docs]\ncommand = "npx"\n')
    said = plane.ok("connect", "codex", "--write", "--file", str(file))
    assert "written" in said
    written = tomllib.loads(file.read_text())
    assert written["mcp_servers"] == {"docs": {"command": "npx"}}
    assert (written["model"], written["model_provider"]) == ("coder", "stoker")
    backups = list(tmp_path.glob("config.toml.before-stoker-*"))
    assert [b.read_text().splitlines()[1] for b in backups] == ['model = "other"']
    assert "nothing to change" in plane.ok("connect", "codex", "--write", "--file", str(file))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_with_a_key_is_its_owners_alone(plane: Machine, tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "settings.json"
    real.write_text('{"theme": "dark"}')
    real.chmod(0o644)
    link.symlink_to(real)
    plane.ok("connect", "claude-code", "--write", "--file", str(link), "--caller", "ann")
    written = json.loads(real.read_text())

    assert link.is_symlink()
    assert written["theme"] == "dark"
    assert real.stat().st_mode & 0o777 == 0o600
    key = written["env"]["ANTHROPIC_AUTH_TOKEN"]
    assert plane.run("connect", "claude-code", "--check", "--key", key).returncode == 0


def test_what_cannot_be_merged_is_left_alone(plane: Machine, tmp_path: Path) -> None:
    file = tmp_path / "opencode.json"
    file.write_text('{\n  // mine\n  "theme": "dark"\n}')
    done = plane.run("connect", "opencode", "--write", "--file", str(file))

    assert done.returncode == 2
    assert f"{file}:2" in done.stderr
    assert "nothing was written" in done.stderr
    assert file.read_text().startswith("{\n  // mine")
    assert os.listdir(tmp_path) == ["opencode.json"]  # noqa: PTH208 -- names are all that is asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("connect", "claude"), "did you mean 'claude-code'"),
        (("connect", "codex", "--model", "codr"), "did you mean 'coder'"),
        (("connect", "codex", "--auxiliary", "smal"), "did you mean 'small'"),
        (("connect", "codex", "--key", "a", "--caller", "b"), "not both"),
        (("conformance", "127.0.0.1:80"), "is no URL"),
    ],
)
def test_mistakes_name_what_is_right(plane: Machine, words: tuple[str, ...], said: str) -> None:
    done = plane.run(*words)

    assert done.returncode == 2
    assert said in done.stderr


def test_a_check_that_fails_says_so(plane: Machine) -> None:
    done = plane.run("connect", "claude-code", "--check", "--key", "wrong")

    assert done.returncode == 1
    assert "fail" in done.stdout


def test_the_gateway_conforms(plane: Machine) -> None:
    done = plane.run("conformance", plane.url, "--key", plane.key, "-o", "json")
    rows = json.loads(done.stdout)["rows"]

    assert [row for row in rows if row["result"] == "fail"] == []
    assert done.returncode == 0
    passed = {row["name"] for row in rows if row["result"] == "pass"}
    assert {"models.anthropic", "door.wrong-key", "chat.tools", "messages.tools", "responses.tools"} <= passed
    assert "messages.replay-claude-code-2.1.332-2" in passed
