"""How long from `stoker up` to the first token, and how much memory when idle? Printed beside the targets.

The wheels are installed and the demo model is here already, as after the first run. Each round is a whole start in a
fresh state directory, with the real engine and the real model.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import free_port

from stoker.drivers.request import Call, stream

STOKER = (sys.executable, "-m", "stoker.cli.main")
TARGETS = {"start to first token, s": "≤ 15", "supervisor + controller + gateway, MB": "≤ 150"}
PARTS = {"supervisor": "stoker.control.supervisor", "controller": "stoker.control", "gateway": "stoker.gateway"}


def first_token(url: str, key: str) -> None:
    """Ask for a stream and return at its first piece of text."""
    ask = {"model": "demo", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "stream": True}
    head = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    call = Call(url=f"{url}/chat/completions", method="POST", headers=head, body=json.dumps(ask).encode(), timeout=60)
    for line in stream(call):
        if b'"content":"' in line and b'"content":""' not in line:
            return


def memory_mb(root: Path, module: str) -> float:
    """Resident memory of the process that runs a module of this state directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if module.encode() in words and str(root).encode() in words:
            pages = int((entry / "statm").read_text().split()[1])
            return pages * 4096 / 1e6
    return 0.0


def round_trip(models: Path) -> dict[str, float]:
    """One start in a fresh state directory, with the model files there already."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        root = Path(folder)
        if models.exists():
            shutil.copytree(models, root / "models")
        port, admin = free_port(), free_port()
        run = (*STOKER, "--state-dir", str(root))
        began = time.perf_counter()
        try:
            up = (*run, "up", "-d", "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}")
            said = subprocess.run(up, capture_output=True, text=True, check=True).stdout
            key = next(line.split()[1] for line in said.splitlines() if line.strip().startswith("key "))
            first_token(f"http://127.0.0.1:{port}/v1", key)
            took = time.perf_counter() - began
            time.sleep(3)
            parts = {name: memory_mb(root, module) for name, module in PARTS.items()}
        finally:
            subprocess.run((*run, "down"), capture_output=True, check=False)
            if not models.exists() and (root / "models").exists():
                shutil.copytree(root / "models", models)
    return {"start to first token, s": took, **parts, "supervisor + controller + gateway, MB": sum(parts.values())}


def main() -> None:
    """Print the median of some rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    models = Path(__file__).parents[1] / "build" / "bench-models"
    models.parent.mkdir(exist_ok=True)
    if not models.exists():
        round_trip(models)  # fetches the model; not counted
    rounds = [round_trip(models) for _ in range(given.rounds)]
    print(f"{'':42}{'target':>10}{'median':>10}{'worst':>10}")
    for name in rounds[0]:
        values = [r[name] for r in rounds]
        print(f"{name:42}{TARGETS.get(name, ''):>10}{statistics.median(values):>10.1f}{max(values):>10.1f}")


if __name__ == "__main__":
    main()
