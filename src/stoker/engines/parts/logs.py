"""What an engine's log tells: how far the start is, what was allocated, and why it ended."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stoker.base.units import parse_bytes
from stoker.engines.base import Explained, LogFacts, Reason


@dataclass(frozen=True, slots=True)
class Trouble:
    """A line that tells why a start failed. The first group of the pattern, if any, is quoted to the person."""

    pattern: re.Pattern[str]
    reason: Reason
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What an engine prints. Groups: bytes as number and unit, tokens as digits with or without commas."""

    ready: re.Pattern[str]
    weights: re.Pattern[str] | None = None
    kv_bytes: re.Pattern[str] | None = None
    kv_tokens: re.Pattern[str] | None = None
    version: re.Pattern[str] | None = None
    loading: re.Pattern[str] | None = None
    troubles: tuple[Trouble, ...] = ()


def trouble(pattern: str, reason: Reason, action: str) -> Trouble:
    """Write one row of a table of troubles."""
    return Trouble(re.compile(pattern, re.IGNORECASE), reason, action)


# What libraries, drivers and kernels say under every engine.
COMMON: Final = (
    trouble(
        r"((?:CUDA|HIP) out of memory[^\n]{0,160}|cudaMalloc failed: out of memory|std::bad_alloc|MemoryError|"
        r"Cannot allocate memory)",
        Reason.OUT_OF_MEMORY,
        "lower spec.engine.contextTokens, maxSequences or memoryFraction, or use a smaller quantization",
    ),
    trouble(
        r"(CUDA driver version is insufficient[^\n]*|NVIDIA driver on your system is too old[^\n]*|"
        r"no kernel image is available[^\n]*|"
        r"libcuda\.so[^\n]*|driver/library version mismatch[^\n]*|forward compatibility was attempted[^\n]*)",
        Reason.DRIVER_MISMATCH,
        "install the driver that this build of the engine asks for, or a build for the driver that is here",
    ),
    trouble(
        r"(address already in use|errno 98|port \d+ is in use[^\n]*|couldn't bind[^\n]*)",
        Reason.PORT_IN_USE,
        "nothing: the next attempt takes another port",
    ),
    trouble(
        r"(unrecognized arguments?[^\n]*|unknown flag[^\n]*|no such option[^\n]*|error: invalid argument[^\n]*|"
        r"error: argument -[^\n]*|unexpected keyword argument[^\n]*)",
        Reason.BAD_FLAG,
        "correct spec.engine.extraArgs; `stoker describe` shows the whole command",
    ),
    trouble(
        r"(illegal instruction|lacks (?:avx|fma|f16c|bmi)[^\n]*)",
        Reason.CPU_TOO_OLD,
        "use an engine built for this processor, or an external endpoint",
    ),
    trouble(
        r"((?:no such file or directory|there is no file)[^\n]*|does not appear to have a file named[^\n]*|"
        r"is not a local folder and is not a valid model identifier[^\n]*|RepositoryNotFoundError)",
        Reason.MODEL_NOT_FOUND,
        "check spec.model; `stoker models` lists what is on this machine",
    ),
)


def read(lines: Sequence[str], known: Lines) -> LogFacts:
    """Read a start-up log. A quantity that is printed several times (per device or shard) is added up."""
    text = "\n".join(lines)
    loading = known.loading.findall(text) if known.loading else []
    version = known.version.search(text) if known.version else None
    return LogFacts(
        ready=known.ready.search(text) is not None,
        weight_bytes=_bytes(known.weights, text),
        kv_cache_bytes=_bytes(known.kv_bytes, text),
        kv_cache_tokens=_tokens(known.kv_tokens, text),
        version=version.group(1) if version else None,
        loading_fraction=min(1.0, float(loading[-1]) / 100) if loading else None,
        trouble=find_trouble(text, known),
    )


def find_trouble(text: str, known: Lines) -> Explained | None:
    """Find the first row whose pattern is in the log; an engine's own rows come before the common ones."""
    for line in (*known.troubles, *COMMON):
        match = line.pattern.search(text)
        if match is not None:
            quoted = next((group for group in match.groups() if group), match.group(0))
            return Explained(reason=line.reason, message=quoted.strip()[:300], action=line.action)
    return None


def explain(*, code: int | None, signal: int | None, log_tail: Sequence[str], known: Lines) -> Explained:
    """Tell why an attempt ended: from its log where that says so, else from the way it ended."""
    found = find_trouble("\n".join(log_tail), known)
    if found is not None:
        return found
    last = next((line.strip()[:300] for line in reversed(log_tail) if line.strip()), "it printed nothing")
    if signal == 9:
        return Explained(
            reason=Reason.KILLED,
            message="it was killed (SIGKILL); where nobody did that, the kernel does it when memory runs out",
            action="look for 'Out of memory' in the kernel's log; lower the context or the number of sequences",
        )
    if signal == 4:
        return Explained(
            reason=Reason.CPU_TOO_OLD,
            message="it used an instruction that this processor does not have (SIGILL)",
            action="use an engine built for this processor, or an external endpoint",
        )
    if signal is not None:
        action = "read its log with `stoker logs --previous`; if it repeats, report it to the engine's project"
        return Explained(
            reason=Reason.CRASHED, message=f"it crashed with signal {signal}; last line: {last}", action=action
        )
    ended = "it ended by itself" if code == 0 else f"it exited with code {code}"
    return Explained(
        reason=Reason.EXITED, message=f"{ended}; last line: {last}", action="read its log with `stoker logs --previous`"
    )


def _bytes(pattern: re.Pattern[str] | None, text: str) -> int | None:
    found = pattern.findall(text) if pattern else []
    return sum(parse_bytes(f"{number}{unit}") for number, unit in found) if found else None


def _tokens(pattern: re.Pattern[str] | None, text: str) -> int | None:
    match = pattern.search(text) if pattern else None
    if match is None:
        return None
    total = 1
    for group in match.groups():
        total *= int(group.replace(",", ""))
    return total
