"""A second opinion on times: AIConfigurator, where the user has installed it in an environment of its own.

It is a program beside ours and no library of ours: it takes 845 MB, seconds to load, and its name is about to change.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.base.errors import Driver, Fault, Invalid
from stoker.predict.fits import Plan

_TIMEOUT: Final = 180.0
_ENGINES: Final = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
_SYSTEMS: Final[Mapping[str, str]] = {
    "H100-SXM": "h100_sxm", "H100-PCIe": "h100_pcie", "H200-SXM": "h200_sxm", "B200-SXM": "b200_sxm",
    "B300-SXM": "b300_sxm", "GB200": "gb200", "GB300": "gb300", "A100-SXM": "a100_sxm", "L40S": "l40s",
}  # fmt: skip
_FOUND: Final = re.compile(r"^\s*(TTFT|TPOT|Backend):\s+(\S+)(?:\s+\(?([\w.]+)\)?)?", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What it says, in seconds. ``source``: whose measurements it used."""

    tpot: float
    ttft: float
    source: str


def ask(program: Path, plan: Plan, model: Path, *, prompt: int, output: int, batch: int) -> Opinion:
    """Ask for one configuration; raises Driver with what the program says when it has no answer."""
    argv = [str(program), *arguments(plan, model, prompt=prompt, output=output, batch=batch)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603 -- the user's own
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Driver(f"{program}: {error}") from error
    found = read(done.stdout)
    if found is None:
        last = next((line for line in reversed((done.stderr or done.stdout).splitlines()) if line.strip()), "nothing")
        raise Driver(f"{program} has no answer (exit code {done.returncode}): {last.strip()[:300]}")
    return found


def arguments(plan: Plan, model: Path, *, prompt: int, output: int, batch: int) -> list[str]:
    """Its command line; raises Invalid for what it does not know."""
    asked, split = plan.ask, plan.ask.split
    system = next((name for card, name in _SYSTEMS.items() if asked.gpu.name.startswith(card)), "")
    engine = _ENGINES.get(asked.engine, "")
    if not system or not engine or not model.is_dir():
        what = "a checkpoint folder on a card and an engine that were measured"
        raise Invalid(Fault(message=f"AIConfigurator knows {what}", field="--second-opinion"))
    words = ["cli", "estimate", "--model-path", str(model), "--system", system, "--backend", engine]
    words += ["--isl", str(prompt), "--osl", str(output), "--batch-size", str(batch)]
    words += ["--tp-size", str(split.tensor), "--pp-size", str(split.pipeline)]
    if asked.shape.experts:
        tensor, expert = (1, split.tensor) if split.expert else (split.tensor, 1)
        words += ["--moe-tp-size", str(tensor), "--moe-ep-size", str(expert)]
    if split.quantize_to_bytes == 1:
        words += ["--gemm-quant-mode", "fp8"] + (["--moe-quant-mode", "fp8"] if asked.shape.experts else [])
    return words + (["--kvcache-quant-mode", "fp8"] if asked.kv_element_bytes == 1 else [])


def read(text: str) -> Opinion | None:
    """Read what it prints; None: there is no estimate in it."""
    found = {name: (value, more) for name, value, more in _FOUND.findall(text)}
    if not {"TTFT", "TPOT"} <= found.keys():
        return None
    try:
        tpot, ttft = float(found["TPOT"][0]) / 1e3, float(found["TTFT"][0]) / 1e3
    except ValueError:
        return None
    engine, version = found.get("Backend", ("", ""))
    return Opinion(tpot=tpot, ttft=ttft, source=f"AIConfigurator, {engine} {version}".strip())
