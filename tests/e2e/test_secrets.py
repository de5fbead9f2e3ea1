"""What must never be written down: keys, engine secrets, and what people ask."""

import os
import stat
from pathlib import Path

import openai
from tests.e2e.machine import Machine

MARK = "a-sentence-that-nobody-else-writes-7f3a"


def test_prompts_keys_and_secrets_are_in_no_file_no_log_and_no_command_line(running: Machine) -> None:
    client = openai.OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
    ask = {"model": "tiny", "messages": [{"role": "user", "content": MARK}], "max_tokens": 8}
    client.chat.completions.create(**ask)
    list(client.chat.completions.create(**ask, stream=True))
    for wrong in ("sk-wrong-7f3a", running.key[:-1]):
        _refused(running, wrong)
    running.ok("usage", "--records")
    secrets = [path.read_text().strip() for path in _secret_files(running.root)]
    running.wait("the ledger has taken the records in", lambda: len(running.data("usage", "--records")["items"]) >= 4)

    assert secrets
    holders = _holding(running.root, [MARK, running.key, "sk-wrong-7f3a", *secrets])
    assert {str(p.relative_to(running.root)) for p in holders} == {
        str(p.relative_to(running.root)) for p in _secret_files(running.root)
    }
    assert not [word for word in [MARK, running.key, *secrets] if word in _command_lines(running)]


def test_what_holds_a_secret_is_for_its_owner_only(running: Machine) -> None:
    for path in (*_secret_files(running.root), running.root / "callers.json", running.root / "routes.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for folder in ("keys", "run", "spool", "logs"):
        assert stat.S_IMODE((running.root / folder).stat().st_mode) == 0o700, folder


def test_an_engine_refuses_whoever_calls_it_directly_without_its_secret(running: Machine) -> None:
    port = running.replicas()[0]["status"]["process"]["port"]
    stranger = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=running.key, max_retries=0)
    try:
        stranger.completions.create(model="tiny", prompt="x", max_tokens=1)
    except openai.AuthenticationError:
        return
    raise AssertionError("the engine answered without its secret")


def test_the_api_refuses_whoever_has_no_token(running: Machine) -> None:
    token = running.root / "keys" / "admin.token"
    kept = token.read_text()
    token.write_text("guessed")
    refused = running.run("status")
    token.write_text(kept)

    assert refused.returncode == 1
    assert "admin.token" in refused.stderr
    assert stat.S_IMODE((running.root / "run" / "api.sock").stat().st_mode) == 0o600


def _refused(made: Machine, key: str) -> None:
    client = openai.OpenAI(base_url=made.url, api_key=key, max_retries=0)
    try:
        client.models.list()
    except openai.AuthenticationError:
        return
    raise AssertionError(f"{key} was let in")


def _secret_files(root: Path) -> list[Path]:
    kept = [root / "keys" / name for name in ("admin.token", "probe.key", "salt")]
    return [*(p for p in kept if p.exists()), *(root / "run").glob("*.secret")]


def _holding(root: Path, words: list[str]) -> set[Path]:
    """Every file below the state directory that holds one of the words; models are left out."""
    found = set()
    for folder, _, names in os.walk(root):
        for path in (Path(folder) / name for name in names):
            if path.is_file() and "models" not in path.relative_to(root).parts:
                data = path.read_bytes()
                if any(word.encode() in data for word in words):
                    found.add(path)
    return found


def _command_lines(made: Machine) -> str:
    """Command lines of everything that belongs to this machine."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(made.root) in line:
            lines.append(line)
    return "\n".join(lines)
