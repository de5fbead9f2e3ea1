"""The tutorial's commands, run as they stand there, with the real demo model."""

import re
import shlex
from pathlib import Path

import pytest
from tests.e2e.machine import Machine

ROOT = Path(__file__).parents[2]
LINES = re.findall(r"^\$ stoker (.+)$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)


@pytest.mark.timeout(300)
def test_every_command_of_the_tutorial_works(fresh: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for line in LINES:
        words = shlex.split(line)
        if words[0] == "down":
            fresh.wait("both models are served", lambda: _served(fresh) == {"demo", "chat"})
        if words[0] == "up":
            words += ["--listen", f"127.0.0.1:{fresh.port}", "--admin", f"127.0.0.1:{fresh.admin}"]
        done = fresh.run(*words, timeout=200)

        assert done.returncode == 0, f"$ stoker {line}\n{done.stdout}\n{done.stderr}\n{fresh.logs()}"
    assert fresh.pids("llama_server") == []


def _served(machine: Machine) -> set[str]:
    return {s["model"] for s in machine.data("status")["services"] if s["routable"]}


def test_the_readme_names_only_commands_that_exist(fresh: Machine) -> None:
    known = set(re.findall(r"^│ (\w+)", fresh.ok("--help"), re.MULTILINE))
    named = set(re.findall(r"`stoker (\w+)", (ROOT / "README.md").read_text()))

    assert named - known == set()


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=str
)
def test_links_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text()
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if not t.startswith(("http", "mailto:"))]

    assert [t for t in targets if not (ROOT / page).parent.joinpath(t).exists()] == []
