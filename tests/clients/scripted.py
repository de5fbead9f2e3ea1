"""The scripted engine as a process that writes down what reaches it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stoker.engines.registry import get

FINAL = "The proof is written."
COMMAND = "echo kindling > proof.txt && cat proof.txt"
# The tools of the known clients that run a command: each gets the arguments that its schema has.
TURN = {
    "text": FINAL,
    "tool_names": ["Bash", "bash", "exec_command", "shell"],
    "tool_arguments": {"command": COMMAND, "cmd": COMMAND, "description": "write the proof"},
    "cached_tokens": 16,
}


@dataclass
class Scripted:
    """One engine. ``secret`` is the key that it wants."""

    folder: Path
    process: subprocess.Popen[str]
    port: int
    secret: str

    def play(self, **script: object) -> None:
        """Follow another script, and forget what came in."""
        self.forget()
        (self.folder / "script.json").write_text(json.dumps({**TURN, **script}))

    def forget(self) -> None:
        (self.folder / "requests.jsonl").unlink(missing_ok=True)

    @property
    def requests(self) -> list[dict]:
        """What came in since the script changed, prompts and all."""
        path = self.folder / "requests.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@contextmanager
def scripted(folder: Path, *, model: str = "fire", secret: str = "") -> Iterator[Scripted]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.json").write_text(json.dumps(TURN))
    words = ["--port", "0", "--script", str(folder / "script.json"), "--record", str(folder / "requests.jsonl")]
    if secret:
        (folder / "secret").write_text(secret)
        words += ["--secret-file", str(folder / "secret")]
    command = [sys.executable, "-m", "stoker.rehearse", *words, "--model", model, "--max-sequences", "16"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert get("simulated").read_log([first]).ready, first
        try:
            yield Scripted(folder, process, int(first.split(",")[0].rpartition(":")[2]), secret)
        finally:
            process.kill()
