"""The real binaries, fetched once from npm into build/clients, which git ignores."""

import fcntl
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "build" / "clients"


@dataclass(frozen=True)
class Package:
    """One version of one client; ``after`` puts its binary in place, which npm leaves to the user."""

    name: str
    version: str
    binary: str
    after: str = ""

    @property
    def folder(self) -> Path:
        return ROOT / f"{self.binary}-{self.version}"


CLAUDE_OLD = Package("@anthropic-ai/claude-code", "2.1.197", "claude", "install.cjs")
CLAUDE_NEW = Package("@anthropic-ai/claude-code", "2.1.332", "claude", "install.cjs")
CODEX = Package("@openai/codex", "0.171.0", "codex")
OPENCODE = Package("opencode-ai", "1.18.33", "opencode", "postinstall.mjs")


def installed(package: Package) -> Path:
    """Give the path of a client's binary. Skips the test when npm cannot be had, and says why."""
    binary = package.folder / "node_modules" / ".bin" / package.binary
    marker = package.folder / "installed"
    package.folder.mkdir(parents=True, exist_ok=True)
    with (ROOT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            _install(package)
            marker.touch()
    return binary


def _install(package: Package) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: the real clients come from there")
    what = f"{package.name}@{package.version}"
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-timeout=30000", "--fetch-retries=1"]
    done = _run(["npm", "install", *options, "--prefix", str(package.folder), what], package.folder)
    if done.returncode:
        reachable = _run(["npm", "ping", "--fetch-timeout=10000", "--fetch-retries=0"], package.folder)
        if reachable.returncode:
            pytest.skip(f"npm is not reachable, so {what} could not be fetched")
        raise AssertionError(f"{what} could not be installed:\n{done.stderr}")
    if package.after:
        place = package.folder / "node_modules" / package.name
        done = _run(["node", package.after], place)
        assert done.returncode == 0, done.stderr


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=240)
