"""Each client in its non-interactive mode, set up by what ``stoker connect`` would write, off the network else."""

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from tests.clients.install import CLAUDE_NEW, CLAUDE_OLD, CODEX, OPENCODE, Package, installed

from stoker.base import clock
from stoker.base.json import JsonObject
from stoker.checks.clients.base import KEY_VARIABLE, Service, Setup
from stoker.checks.clients.known import known
from stoker.checks.clients.merge import deep, merged

# Where the tools are that a client's shell needs, and node, which may lie elsewhere.
_PATH = os.pathsep.join({os.path.dirname(shutil.which(name) or "/bin/sh") for name in ("node", "sh", "git")})  # noqa: PTH120


@dataclass(frozen=True)
class Done:
    """What a client said, and how it ended; ``code`` is None when it was still trying and was stopped."""

    code: int | None
    said: str
    seconds: float


@dataclass(frozen=True)
class Agent:
    """One client. ``words`` are its arguments; the prompt comes last."""

    label: str
    client: str
    package: Package
    words: tuple[str, ...]

    def run(
        self,
        service: Service,
        folder: Path,
        *,
        prompt: str = "write the proof",
        limit: float = 60,
        key: str = "",
        more: JsonObject | None = None,
    ) -> Done:
        """Run it in a folder of its own, for at most ``limit`` seconds.

        ``key`` is for a file in which none is written, ``more`` are settings beside those of ``stoker connect``.
        """
        binary = installed(self.package)
        home, work = folder / "home", folder / "work"
        home.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        setup = known(self.client).setup(service)
        environment = self._environment(home, replace(setup, settings=deep(setup.settings, more or {})))
        environment[KEY_VARIABLE] = key or service.key
        return _run([str(binary), *self.words, prompt], work, environment, limit)

    def _environment(self, home: Path, setup: Setup) -> dict[str, str]:
        """Write the client's own file where it looks for it, and hide everything of this machine's user."""
        variable, below = known(self.client).home
        place = home / below
        place.mkdir(parents=True, exist_ok=True)
        (place / setup.file).write_text(merged(setup, "", file=setup.file))
        environment = {
            "PATH": _PATH,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }
        if variable:
            environment[variable] = str(place)
        environment |= {f"XDG_{kind}_HOME": str(home / f".{kind.lower()}") for kind in ("DATA", "CACHE", "STATE")}
        environment |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        environment |= {"OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "DISABLE_AUTOUPDATER": "1"}
        return environment


def _run(words: list[str], work: Path, environment: dict[str, str], limit: float) -> Done:
    began = clock.mono()
    with subprocess.Popen(
        words,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the client's own children, too
            said, _ = process.communicate()
            code = None
    return Done(code, said, clock.mono() - began)


_CLAUDE = ("--allowedTools", "Bash", "--output-format", "text", "-p")
CLAUDES = (
    Agent("claude-code 2.1.197", "claude-code", CLAUDE_OLD, _CLAUDE),
    Agent("claude-code 2.1.332", "claude-code", CLAUDE_NEW, _CLAUDE),
)
CODEX_AGENT = Agent(
    "codex 0.171.0",
    "codex",
    CODEX,
    ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
)
OPENCODE_AGENT = Agent("opencode 1.18.33", "opencode", OPENCODE, ("run",))
AGENTS = (*CLAUDES, CODEX_AGENT, OPENCODE_AGENT)
